"""Blur: Gaussian, defocus, glass, motion, zoom."""

import numpy as np
import torch
from torch import Tensor

from dsf.data.corruptions.constants import Constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.filters import (
    correlate,
    gather_pixels,
    gaussian,
    motion_blur,
    separable,
    zoom_matrix,
)
from dsf.data.corruptions.levels import as_levels, on_device, rounded, truncated


def gaussian_blur(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """A Gaussian filter of deviation sigma, cut off at 4 sigma, the border repeated."""
    (sigma,) = constants
    return truncated(gaussian(as_levels(images), sigma))


def defocus_blur(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """The mean over a disk of the given radius whose edge is blurred by ``alias``."""
    radius, alias = constants
    return truncated(correlate(as_levels(images), disk(radius, alias)))


def disk(radius: float, alias: float) -> Tensor:
    """The kernel of defocus: 17 x 17, or larger for a radius above 8.

    Its edge is blurred by a Gaussian of 3 x 3 taps (5 x 5 above radius 8), mirrored at the
    kernel's own border as OpenCV does it, so that disks that reach it do not sum to 1.
    """
    reach, taps = (8, 1) if radius <= 8 else (int(radius), 2)
    places = torch.arange(-reach, reach + 1, dtype=torch.float64)
    inside = (places.square() + places.square()[:, None] <= radius**2).to(torch.float64)
    steps = torch.arange(-taps, taps + 1, dtype=torch.float64)
    weights = (-0.5 * (steps / alias).square()).exp()
    weights /= weights.sum()
    return correlate((inside / inside.sum())[None, None], weights * weights[:, None])[0, 0]


def motion(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """ImageMagick's motion blur of a radius and sigma along an angle in [-45, 45] degrees."""
    radius, sigma = constants
    angle = draws.uniform(low=-45, high=45)
    return rounded(motion_blur(images, radius, sigma, angle))


def zoom_blur(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """The mean of the image and of its enlargements by 1, 1 + step, ... below ``stop``."""
    stop, step = constants
    levels = as_levels(images)
    total = levels.clone()
    factors = np.arange(1, stop, step).tolist()  # NumPy's rounding decides about the last one
    down, across = (
        on_device(torch.stack([zoom_matrix(side, factor) for factor in factors]), images)
        for side in images.shape[-2:]
    )
    for matrices in zip(down, across, strict=True):
        total += separable(levels, *matrices)
    return truncated(total / (len(factors) + 1))


def glass_blur(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Blurred, each pixel taken from a neighbour up to ``delta`` away, several times, and blurred.

    Pixels are visited from the last to the first, all but a margin. As in the published sets a
    pixel takes its neighbour's colour and the neighbour keeps its own: the swap that was meant
    there reads a NumPy view that it has just written.
    """
    sigma, delta, passes = constants
    pixels = truncated(gaussian(as_levels(images), sigma))
    for _ in range(int(passes)):
        pixels = take_neighbours(pixels, int(delta), draws)
    return truncated(gaussian(as_levels(pixels), sigma))


def take_neighbours(pixels: Tensor, delta: int, draws: Draws) -> Tensor:
    """One pass of glass blur: offsets in [-delta, delta) for each pixel, columns first.

    In one go: a pixel either takes a neighbour that has not been visited, or the colour that a
    visited one took before, and the places where such chains end are found by pointer doubling.
    """
    height, width = pixels.shape[-2:]
    offsets = draws.uniform(2, height, width, low=-delta, high=delta).floor().to(torch.int64)
    right, down = offsets.unbind(1)
    rows = torch.arange(height, device=pixels.device)[:, None]
    columns = torch.arange(width, device=pixels.device)

    def visited(row: Tensor, column: Tensor) -> Tensor:
        inside = (row > delta) & (row <= height - delta)
        return inside & (column > delta) & (column <= width - delta)

    moves = visited(rows, columns)
    row = torch.where(moves, rows + down, rows)
    column = torch.where(moves, columns + right, columns)
    own, place = rows * width + columns, row * width + column
    # Numbers from ``count`` on stand for colours after the visit, lower ones for those before.
    count = height * width
    place = torch.where(visited(row, column) & (place > own), place + count, place).flatten(1)
    if delta > 1:  # with offsets of -1 and 0 nothing visited is ever taken
        for _ in range(count.bit_length()):
            onward = place.gather(1, (place - count).clamp_(min=0))
            place = torch.where(place >= count, onward, place)
    return gather_pixels(pixels.flatten(2), place).view(pixels.shape)
