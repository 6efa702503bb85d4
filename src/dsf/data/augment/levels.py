"""Operations on levels: RandAugment's lookup tables and its sharpening, with PIL's rounding.

Planes and parameters are as in ``colour``. Each operation has a parameter at which nothing
changes, so that all views can go through all of them.
"""

import torch
from torch import Tensor

from dsf.data.augment.fixed import Planes, divide, per_view


def posterize(planes: Planes, step: Tensor) -> Planes:
    """Round levels down to multiples of ``step``, a power of two; 1 changes nothing."""
    step = per_view(step)
    red, green, blue = (((1 / step) * plane).floor() * step for plane in planes)
    return red, green, blue


def solarize(planes: Planes, threshold: Tensor) -> Planes:
    """Invert all levels from a threshold on; 256 changes nothing."""
    threshold = per_view(threshold)
    red, green, blue = (torch.where(plane < threshold, plane, 255 - plane) for plane in planes)
    return red, green, blue


def autocontrast(planes: Planes, chosen: Tensor) -> Planes:
    """Stretch each channel to 0 to 255 where it is chosen."""

    def stretch(plane: Tensor) -> Tensor:
        low, high = plane.amin((-2, -1), keepdim=True), plane.amax((-2, -1), keepdim=True)
        active = per_view(chosen) & (high > low)
        stretched = divide(255 * (plane - low), (high - low).clamp(min=1))
        return torch.where(active, stretched, plane)

    red, green, blue = (stretch(plane) for plane in planes)
    return red, green, blue


def equalize(planes: Planes, chosen: Tensor, positions: Tensor) -> Planes:
    """Make each channel's histogram flat where it is chosen.

    ``positions`` is an int64 arange of at least the width. Views that are not equalised count
    along rows instead of levels: neighbours then fall into neighbouring bins, which a GPU adds
    up at once, where equal ones would wait for each other.
    """
    views, height, width = planes[0].shape
    pixels = height * width
    ramp = (positions[:width] & 255).expand(views, height, width)

    def flatten(plane: Tensor) -> Tensor:
        level = plane.to(torch.int64)
        counted = torch.where(per_view(chosen), level, ramp).flatten(1)
        ones = torch.ones((), dtype=torch.int32, device=plane.device).expand_as(counted)
        bins = torch.zeros(views, 256, dtype=torch.int32, device=plane.device)
        histogram = bins.scatter_add(1, counted, ones)
        brightest = plane.amax((-2, -1), keepdim=True)
        last = (plane == brightest).to(torch.int32).sum((-2, -1), dtype=torch.int32)
        step = ((pixels - last) // 255)[:, None].to(torch.float32)
        below = (histogram.cumsum(1, dtype=torch.int32) - histogram).to(torch.float32)
        table = divide((step * 0.5).floor() + below, step.clamp(min=1)).clamp(max=255)
        mapped = table.gather(1, level.flatten(1)).view_as(plane)
        return torch.where(per_view(chosen) & (step[:, :, None] > 0), mapped, plane)

    red, green, blue = (flatten(plane) for plane in planes)
    return red, green, blue


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
