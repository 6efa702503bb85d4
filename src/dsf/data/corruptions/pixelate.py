"""Pixels made larger."""

from functools import cache

import torch
from torch import Tensor

from dsf.data.corruptions.constants import Constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.levels import as_levels, on_device

_WEIGHT_BITS = 22  # Pillow's own


def pixelate(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Reduced to ``share`` of its sides and enlarged again, both by Pillow's box filter."""
    (share,) = constants
    height, width = images.shape[-2:]
    small = resized(as_levels(images), int(height * share), int(width * share))
    return resized(small, height, width).to(torch.uint8)


def resized(levels: Tensor, height: int, width: int) -> Tensor:
    """Pillow's box filter, to the bit: rows first, rounded to bytes after each axis."""
    if levels.shape[-1] != width:
        levels = _rounded(levels @ on_device(_box_matrix(levels.shape[-1], width), levels).T)
    if levels.shape[-2] != height:
        levels = _rounded(on_device(_box_matrix(levels.shape[-2], height), levels) @ levels)
    return levels


def _rounded(total: Tensor) -> Tensor:
    # Integers below 2^53 up to here, which float64 adds without rounding.
    return ((total + (1 << (_WEIGHT_BITS - 1))) * 2.0**-_WEIGHT_BITS).floor_()


@cache
def _box_matrix(side: int, length: int) -> Tensor:
    # An output pixel is the mean of the pixels whose middle lies in it, at least of one.
    scale = side / length
    reach = 0.5 * max(scale, 1)
    matrix = torch.zeros(length, side, dtype=torch.float64)
    for place in range(length):
        centre = (place + 0.5) * scale
        first, stop = max(int(centre - reach + 0.5), 0), min(int(centre + reach + 0.5), side)
        inside = [
            column
            for column in range(first, stop)
            if -0.5 < (column - centre + 0.5) / max(scale, 1) <= 0.5
        ]
        matrix[place, inside] = float(int(0.5 + (1 << _WEIGHT_BITS) / len(inside)))
    return matrix
