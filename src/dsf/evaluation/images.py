"""Labelled images, wherever they lie: on the device, in memory, or streamed from the disk."""

from collections import deque
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from dsf.data import Batch, Split


class LabelledImages:
    """Images with their labels: a split of a data set, or a part of one.

    Args:
        source: (N, 3, H, W) uint8 on any device, or a ``Split``, which is streamed.
        labels: (N,) integers; of a split its own by default.
        sizes: (N, 2), heights and widths before images were squashed to H x W; None where nothing
            was squashed. Of a split its own by default.
        rows: (n,) int64, if only these of the images count.
        name: what error messages call it.
    """

    def __init__(
        self,
        source: Tensor | Split,
        labels: Tensor | None = None,
        sizes: Tensor | None = None,
        rows: Tensor | None = None,
        name: str = "",
    ) -> None:
        if isinstance(source, Split):
            labels = source.labels() if labels is None else labels
            sizes = source.sizes() if sizes is None else sizes
            name = name or source.name
        elif source.dim() != 4 or source.shape[1] != 3 or source.dtype != torch.uint8:
            raise ValueError(
                "source must be a Split, or uint8 images of shape (N, 3, H, W); "
                f"got {source.dtype} of shape {tuple(source.shape)}"
            )
        self.source, self.name = source, name or "images"
        count = len(source)
        if labels is None or labels.shape != (count,) or labels.is_floating_point():
            got = None if labels is None else f"{labels.dtype} of shape {tuple(labels.shape)}"
            raise ValueError(f"{self.name}: labels must be integers of ({count},); got {got}")
        if sizes is not None and sizes.shape != (count, 2):
            raise ValueError(f"{self.name}: sizes must be ({count}, 2); got {tuple(sizes.shape)}")
        if 0 in (count, None if rows is None else len(rows)):
            raise ValueError(f"{self.name} has no images: there is nothing to evaluate")
        self._labels, self._sizes = labels, sizes
        self._rows = None if rows is None else rows.to(labels.device)
        self.labels = labels if self._rows is None else labels[self._rows]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the stored images."""
        if isinstance(self.source, Split):
            return self.source.image_size, self.source.image_size
        return int(self.source.shape[-2]), int(self.source.shape[-1])

    @property
    def squashed(self) -> bool:
        """Whether the images had other proportions before they were stored."""
        return self._sizes is not None

    def sizes(self, samples: Tensor) -> Tensor | None:
        """Heights and widths before squashing, on the device of ``samples``."""
        if self._sizes is None:
            return None
        return self._sizes[self._places(samples)].to(samples.device)

    def to(self, device: torch.device | str) -> "LabelledImages":
        """The same on a device; a split stays on the disk, only its labels and sizes move."""
        return LabelledImages(
            self.source if isinstance(self.source, Split) else self.source.to(device),
            self._labels.to(device),
            None if self._sizes is None else self._sizes.to(device),
            self._rows,
            self.name,
        )

    def part(self, rows: Tensor, name: str = "") -> "LabelledImages":
        """Some of these images, which stay where they are."""
        rows = self._places(rows)
        return LabelledImages(self.source, self._labels, self._sizes, rows, name or self.name)

    def joined(self, other: "LabelledImages") -> "LabelledImages":
        """These images and then others that are stored alike, all in memory."""
        if (self.squashed, self.image_size) != (other.squashed, other.image_size):
            raise ValueError(
                f"{self.name} and {other.name} must be stored alike; "
                f"got {self.image_size} and {other.image_size}"
            )
        sizes = None
        if self._sizes is not None and other._sizes is not None:
            both = (self._own(self._sizes), other._own(other._sizes))
            sizes = torch.cat([part.to(self._labels.device) for part in both])
        images = [part._images() for part in (self, other)]
        return LabelledImages(
            torch.cat([part.to(images[0].device) for part in images]),
            torch.cat([self.labels, other.labels.to(self.labels.device)]),
            sizes,
            name=f"{self.name} and {other.name}",
        )

    def batches(self, samples: Iterable[Tensor], device: torch.device) -> Iterator[Batch]:
        """Images of given places among these, on the device, batch by batch.

        Args:
            samples: int64, best on the device where the labels are.
            device: where the images are wanted.
        """
        if isinstance(self.source, Split):
            yield from self._stream(self.source, samples, device)
            return
        for places in samples:
            images = self.source[self._places(places).to(self.source.device)]
            yield Batch(places.to(device), images.to(device, non_blocking=True))

    def _stream(
        self, split: Split, samples: Iterable[Tensor], device: torch.device
    ) -> Iterator[Batch]:
        waiting: deque[Tensor] = deque()

        def rows() -> Iterator[Tensor]:
            for places in samples:
                waiting.append(places)
                yield self._places(places).cpu()

        # Batches come in the order in which they were asked for, a few of them later.
        for batch in split.stream(rows(), device):
            yield Batch(waiting.popleft().to(device), batch.images)

    def _places(self, samples: Tensor) -> Tensor:
        """The places of samples in the source."""
        samples = samples.to(self._labels.device)
        return samples if self._rows is None else self._rows[samples]

    def _own(self, values: Tensor) -> Tensor:
        return values if self._rows is None else values[self._rows.to(values.device)]

    def _images(self) -> Tensor:
        if isinstance(self.source, Split):
            return self.source.gather(self._own(torch.arange(len(self.source))))
        return self._own(self.source)
