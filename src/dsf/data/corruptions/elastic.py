"""Elastic transform: an affine map, then displacements that vary smoothly."""

import torch
from torch import Tensor

from dsf.data.corruptions.constants import Constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.filters import Border, fold, gather_pixels, gaussian
from dsf.data.corruptions.levels import as_levels, on_device, truncated

_FRACTIONS = 32  # of a pixel, which OpenCV's affine maps know


def elastic_transform(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Three points moved by up to ``shift``, then each pixel by blurred noise.

    The noise is uniform in [-1, 1], blurred by ``sigma`` (cut off at 3 sigma) and multiplied by
    ``strength``. All three are fractions of the shorter side. The affine map mirrors the border
    about its pixels and rounds places to 1/32 of a pixel as OpenCV does; displacements reflect it
    at its edge as SciPy does.
    """
    height, width = images.shape[-2:]
    strength, sigma, shift = (min(height, width) * constant for constant in constants)
    moved = draws.uniform(3, 2, low=-shift, high=shift)
    noise = draws.uniform(2, height, width, low=-1, high=1)
    column, row = affine_places(moved, height, width)
    levels = bilinear(as_levels(images), row, column, "mirror")
    if strength:
        right, down = (strength * gaussian(noise, sigma, 3.0, "reflect")).unbind(1)
        rows, columns = grid(height, width, images.device)
        levels = bilinear(levels, rows + down, columns + right, "reflect")
    return truncated(levels)


def affine_places(moved: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Where each pixel comes from, (N, H, W) columns and rows.

    The map takes three corners of a square in the middle to where (N, 3, 2) ``moved`` puts them.
    """
    # As published, in which the order of height and width matters for other than square images.
    middle = torch.tensor([height // 2, width // 2], dtype=torch.float64)
    reach = min(height, width) // 3
    corners = middle + reach * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    corners = on_device(corners, moved)
    after = corners + moved
    (a, b), (c, d) = (side.unbind(-1) for side in (after[:, :2] - after[:, 2:]).unbind(1))
    determinant = (a * d - b * c)[:, None, None]
    rows, columns = grid(height, width, moved.device)
    x = columns - after[:, 2, 0, None, None]
    y = rows - after[:, 2, 1, None, None]
    # (x, y) = s (a, b) + t (c, d); backwards the same s and t weigh the sides of the square.
    a, b, c, d = (side[:, None, None] for side in (a, b, c, d))
    s, t = (x * d - y * c) / determinant, (a * y - b * x) / determinant
    sides = corners[:2] - corners[2]
    places = [corners[2, i] + s * sides[0, i] + t * sides[1, i] for i in (0, 1)]
    column, row = ((place * _FRACTIONS + 0.5).floor() / _FRACTIONS for place in places)
    return column, row


def grid(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The row and the column of each pixel, (H, 1) and (W,) in float64."""
    rows, columns = (
        torch.arange(side, dtype=torch.float64, device=device) for side in (height, width)
    )
    return rows[:, None], columns


def bilinear(levels: Tensor, row: Tensor, column: Tensor, border: Border) -> Tensor:
    """(N, C, H, W) at (N, H, W) places."""
    height, width = levels.shape[-2:]
    flat = levels.flatten(2)
    top, left = row.floor(), column.floor()
    down, right = row - top, column - left
    total = torch.zeros_like(flat)
    for below, vertical in ((0, 1 - down), (1, down)):
        for beside, horizontal in ((0, 1 - right), (1, right)):
            y = fold(top.to(torch.int64) + below, height, border)
            x = fold(left.to(torch.int64) + beside, width, border)
            weight = (vertical * horizontal).flatten(1)[:, None]
            total += weight * gather_pixels(flat, (y * width + x).flatten(1))
    return total.view(levels.shape)
