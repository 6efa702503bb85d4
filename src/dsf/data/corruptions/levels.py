"""Between bytes and the numbers that corruptions calculate with."""

import torch
from torch import Tensor

# Far above rounding errors in float64, far below a level.
_TINY = 2.0**-20


def on_device(table: Tensor, like: Tensor) -> Tensor:
    """A small table where another tensor lies, without waiting for what the device has to do."""
    return table.to(like.device, non_blocking=True)


def as_levels(images: Tensor) -> Tensor:
    """Bytes as float64, in which batches and devices agree far beyond a level."""
    return images.to(torch.float64)


def truncated(levels: Tensor) -> Tensor:
    """Levels as bytes, cut off as the published sets are, not rounded.

    A whole number that rounding errors put just below itself stays; NumPy loses a level there.
    """
    return (levels + _TINY).clamp_(0, 255).to(torch.uint8)


def rounded(levels: Tensor) -> Tensor:
    """Levels as the nearest bytes, halves up."""
    return truncated(levels + 0.5)
