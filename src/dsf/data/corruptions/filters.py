"""What several corruptions share: linear maps along rows and columns, motion, neighbourhoods.

An operation that acts along each axis on its own is one matrix an axis, with the borders folded
into it: exact at any radius, and fast on every device.
"""

import math
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from dsf.data.corruptions.levels import on_device

Border = Literal["nearest", "reflect", "mirror"]


def separable(levels: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """(..., H, W) float64 to (..., H', W'), by matrices (H', H) and (W', W)."""
    down, across = (on_device(matrix, levels) for matrix in (down, across))
    return down @ (levels @ across.T)


def gaussian(
    levels: Tensor, sigma: float, truncate: float = 4.0, border: Border = "nearest"
) -> Tensor:
    """scikit-image's and SciPy's Gaussian filter: weights up to ``truncate`` deviations."""
    height, width = levels.shape[-2:]
    down, across = (gaussian_matrix(side, sigma, truncate, border) for side in (height, width))
    return separable(levels, down, across)


@cache
def gaussian_matrix(side: int, sigma: float, truncate: float, border: Border) -> Tensor:
    """(side, side): what a Gaussian filter does along one axis."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return torch.eye(side, dtype=torch.float64)
    steps = torch.arange(-radius, radius + 1)
    weights = (-0.5 * (steps.to(torch.float64) / sigma).square()).exp()
    weights /= weights.sum()
    places = fold(torch.arange(side)[:, None] + steps, side, border)
    return torch.zeros(side, side, dtype=torch.float64).scatter_add_(
        1, places, weights.expand(side, -1)
    )


def fold(places: Tensor, side: int, border: Border) -> Tensor:
    """Indices beyond the border, folded back: aaa|abc|ccc, cba|abc|cba or cb|abc|ba."""
    if border == "nearest":
        return places.clamp(0, side - 1)
    if border == "reflect":
        places = places.remainder(2 * side)
        return torch.minimum(places, 2 * side - 1 - places)
    places = places.remainder(2 * side - 2)
    return torch.minimum(places, 2 * side - 2 - places)


@cache
def zoom_matrix(side: int, factor: float) -> Tensor:
    """(side, side): the middle of an axis, enlarged linearly and cut to its former length.

    The part of ceil(side / factor) pixels becomes round(part * factor), its first and last pixel
    the first and last of the result; the surplus is trimmed evenly.
    """
    part = math.ceil(side / factor)
    first = (side - part) // 2
    length = round(part * factor)
    place = torch.arange(side, dtype=torch.float64) + (length - side) // 2
    place = place * ((part - 1) / max(length - 1, 1))
    low = place.floor().clamp_(0, max(part - 2, 0))
    share = (place - low)[:, None]
    matrix = torch.zeros(side, side, dtype=torch.float64)
    rows = first + low.to(torch.int64)[:, None]
    matrix.scatter_add_(1, rows, 1 - share)
    return matrix.scatter_add_(1, (rows + 1).clamp_(max=side - 1), share)


def correlate(levels: Tensor, kernel: Tensor) -> Tensor:
    """(N, C, H, W) with one odd kernel for all, the border mirrored about its pixels.

    Tap by tap, in a fixed order: convolutions of a GPU choose theirs, and round with it.
    """
    height, width = levels.shape[-2:]
    reach = [side // 2 for side in kernel.shape]
    rows, columns = (
        fold(torch.arange(-r, n + r, device=levels.device), n, "mirror")
        for r, n in zip(reach, (height, width), strict=True)
    )
    padded = levels.index_select(-2, rows).index_select(-1, columns)
    total = torch.zeros_like(levels)
    for row, weights in enumerate(kernel.tolist()):
        for column, weight in enumerate(weights):
            if weight:
                taken = padded[..., row : row + height, column : column + width]
                total.add_(taken, alpha=weight)
    return total


def motion_blur(images: Tensor, radius: float, sigma: float, angle: Tensor) -> Tensor:
    """ImageMagick's motion blur of (N, C, H, W) bytes along (N,) angles in degrees, as levels.

    A pixel takes the 2 ceil(radius) + 1 pixels in one direction from it on, with the weights of
    half a Gaussian; places are rounded to whole pixels, and the border is repeated.
    """
    height, width = images.shape[-2:]
    steps = torch.arange(2 * math.ceil(radius) + 1, dtype=torch.float64)
    weights = (-0.5 * (steps / sigma).square()).exp()
    weights /= weights.sum()
    turned = torch.deg2rad(angle.to(torch.float64))
    flat = images.flatten(2)
    rows, columns = (torch.arange(side, device=images.device) for side in (height, width))
    total = torch.zeros(flat.shape, dtype=torch.float64, device=images.device)
    for step, weight in enumerate(weights.tolist()):
        down, right = (
            (step * direction - 0.5).ceil().to(torch.int64)
            for direction in (turned.sin(), turned.cos())
        )
        row = (rows + down[:, None]).clamp_(0, height - 1)
        column = (columns + right[:, None]).clamp_(0, width - 1)
        place = (row[:, :, None] * width + column[:, None]).flatten(1)
        total.add_(gather_pixels(flat, place), alpha=weight)
    return total.view(images.shape)


def gather_pixels(flat: Tensor, places: Tensor) -> Tensor:
    """(N, C, P) of the (N, P') places: (N, C, P')."""
    return flat.gather(2, places[:, None].expand(-1, flat.shape[1], -1))
