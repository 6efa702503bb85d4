"""Operations on levels: RandAugment's lookup tables and its sharpening, with PIL's rounding.

Planes and parameters are as in ``colour``.
"""

import torch
from torch import Tensor

from dsf.data.augment.colour import blend
from dsf.data.augment.fixed import divide, per_view
from dsf.data.augment.planes import Planes


def posterize(planes: Planes, step: Tensor) -> Planes:
    """Round levels down to multiples of ``step``, a power of two; 1 changes nothing."""
    step = per_view(step)
    red, green, blue = (divide(plane, step) * step for plane in planes)
    return red, green, blue


def solarize(planes: Planes, threshold: Tensor) -> Planes:
    """Invert all levels from a threshold on; 256 changes nothing."""
    threshold = per_view(threshold)
    red, green, blue = (torch.where(plane < threshold, plane, 255 - plane) for plane in planes)
    return red, green, blue


def autocontrast(planes: Planes) -> Planes:
    """Stretch each channel to 0 to 255."""

    def stretch(plane: Tensor) -> Tensor:
        low, high = plane.amin((-2, -1), keepdim=True), plane.amax((-2, -1), keepdim=True)
        stretched = divide(255 * (plane - low), (high - low).clamp(min=1))
        return torch.where(high > low, stretched, plane)

    red, green, blue = (stretch(plane) for plane in planes)
    return red, green, blue


def equalize(planes: Planes, wanted: Tensor, positions: Tensor) -> Planes:
    """Make the histograms of each channel flat, in the views where that is wanted.

    The others come back as anything: they are counted along rows instead of levels. Neighbours
    then fall into neighbouring bins, which a GPU adds up at once, where equal ones would wait for
    each other. ``positions`` is an int64 arange of at least the width.
    """
    views, height, width = planes[0].shape
    pixels = height * width
    ramp = (positions[:width] & 255).expand(views, height, width)

    def flatten(plane: Tensor) -> Tensor:
        level = plane.to(torch.int64)
        counted = torch.where(per_view(wanted), level, ramp).flatten(1)
        ones = torch.ones((), dtype=torch.int32, device=plane.device).expand_as(counted)
        bins = torch.zeros(views, 256, dtype=torch.int32, device=plane.device)
        histogram = bins.scatter_add(1, counted, ones)
        through = histogram.cumsum(1, dtype=torch.int32)
        # All pixels but the brightest share 255 steps; PIL does nothing if there are too few.
        darker = torch.where(through < pixels, through, 0).amax(1, keepdim=True)
        step = darker // 255
        # In integers: of large views these are more than ``divide`` takes.
        table = ((step // 2 + through - histogram) // step.clamp(min=1)).clamp(max=255)
        mapped = table.to(torch.float32).gather(1, level.flatten(1)).view_as(plane)
        return torch.where(step[:, :, None] > 0, mapped, plane)

    red, green, blue = (flatten(plane) for plane in planes)
    return red, green, blue


def sharpness(planes: Planes, factor: Tensor) -> Planes:
    """Blend with the smoothed image."""
    return blend(planes, smooth(planes), factor)


def smooth(planes: Planes) -> Planes:
    """PIL's SMOOTH: each pixel five times and its neighbours once, the border left as it is."""

    def filtered(plane: Tensor) -> Tensor:
        rows = plane[:, :-2] + plane[:, 1:-1] + plane[:, 2:]
        square = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
        inner = ((square + 4 * plane[:, 1:-1, 1:-1] + 6.5) * (1 / 13)).floor()
        return torch.slice_scatter(
            plane, torch.slice_scatter(plane[:, 1:-1], inner, 2, 1, -1), 1, 1, -1
        )

    red, green, blue = (filtered(plane) for plane in planes)
    return red, green, blue
