"""Views of two resolutions."""

from torch import Tensor, nn

from dsf.data.augment.views import TwoSides, Views


class MultiCrop(nn.Module):
    """Multi-crop of SwAV (Caron et al., 2020): local views, small crops at a lower resolution.

    A view is a function of its id whatever its kind, so the global views of an image are the same
    with local ones as without.

    Args:
        whole: makes the global views.
        local: makes the local ones.
        count: how many there are, the last of ``view_ids``.
    """

    def __init__(self, whole: Views | TwoSides, local: Views, count: int) -> None:
        super().__init__()
        if count < 1:
            raise ValueError(f"count must be at least 1; got {count}")
        self.whole, self.local, self.count = whole, local, count

    def forward(
        self,
        images: Tensor,
        samples: Tensor,
        epoch: Tensor | int,
        view_ids: Tensor,
        sizes: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The global and the local views; arguments as of ``Views``."""
        if view_ids.dim() != 1 or view_ids.shape[0] <= self.count:
            raise ValueError(
                f"view_ids must be one-dimensional and more than the {self.count} local views; "
                f"got {tuple(view_ids.shape)}"
            )
        return (
            self.whole(images, samples, epoch, view_ids[: -self.count], sizes),
            self.local(images, samples, epoch, view_ids[-self.count :], sizes),
        )
