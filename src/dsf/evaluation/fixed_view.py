"""How an image is shown to an encoder when it is tested: the one view that is not random."""

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from dsf.data.augment import resample
from dsf.data.augment.parameters import Parameters
from dsf.evaluation.images import LabelledImages

# 224 of 256 pixels, as everybody does with ImageNet.
_SHARE = (7, 8)


class FixedView(nn.Module):
    """One fixed view of each image, in bytes.

    Images that were squashed into a square when they were stored show the central square of 7/8 of
    their shorter side in their original proportions, as after "resize to 256, centre crop 224".
    Others, such as CIFAR's, are shown whole. Either is resized with an antialiasing filter, where
    the size differs.

    Args:
        images: of the kind that will be shown.
        size: side of the views.
    """

    positions: Tensor

    def __init__(self, images: LabelledImages, size: int) -> None:
        super().__init__()
        self.size, self.squashed = size, images.squashed
        self.register_buffer("positions", torch.arange(size), persistent=False)
        height, width = images.image_size
        if min(height, width) < 4 or max(height, width) > 4096:
            raise ValueError(f"images must have 4 to 4096 pixels a side; got {height} x {width}")
        if self.squashed:
            self.summary = "the central square of 7/8 of the shorter side"
        else:
            self.summary = "whole" if (height, width) == (size, size) else "whole, resized"

    def forward(self, images: Tensor, sizes: Tensor | None = None) -> Tensor:
        """(B, 3, size, size) uint8 of (B, 3, H, W) uint8 and, if squashed, (B, 2) sizes."""
        if sizes is not None:
            return self._crop(images, sizes.to(torch.int64))
        if images.shape[-2:] == (self.size, self.size):
            return images
        resized = interpolate(
            images.float(), size=(self.size, self.size), mode="bilinear", antialias=True
        )
        return resized.round_().clamp_(0, 255).to(torch.uint8)

    def _crop(self, images: Tensor, sizes: Tensor) -> Tensor:
        height, width = sizes.unbind(-1)
        side = (torch.minimum(height, width) * _SHARE[0] // _SHARE[1]).clamp_min(1)
        planes = resample.crop(
            images,
            _crop_only((height - side) // 2, (width - side) // 2, side),
            sizes,
            self.positions,
        )
        return torch.stack(planes, dim=-1).permute(0, 3, 1, 2)


def _crop_only(top: Tensor, left: Tensor, side: Tensor) -> Parameters:
    no, one = torch.zeros_like(side, dtype=torch.bool), torch.ones_like(side, dtype=torch.float32)
    zero = torch.zeros_like(side)
    return Parameters(
        top=top,
        left=left,
        height=side,
        width=side,
        flip=no,
        operations=zero[:, None],
        negative=no[:, None],
        jitter=no,
        order=zero[:, None],
        factors=one[:, None],
        hue=zero,
        grayscale=no,
        radius=zero.float(),
        solarize=no,
    )
