"""Operations on the colours of each pixel, with PIL's rounding: jitter and grayscale.

All but ``jitter`` take and return planes of integers 0 to 255 in float32; see ``fixed`` for why.
Parameters are (V,) tensors, one number a view.
"""

import torch
from torch import Tensor

from dsf.data.augment.fixed import divide, per_view
from dsf.data.augment.parameters import Parameters
from dsf.data.augment.planes import Planes, Step, apply_one
from dsf.data.augment.recipe import Recipe


def luma(planes: Planes) -> Tensor:
    """The gray level, ITU-R 601-2 in PIL's 16-bit weights."""
    red, green, blue = planes
    weighted = (19595 * red).add_(green, alpha=38470).add_(blue, alpha=7471)
    return weighted.add_(32768).mul_(2.0**-16).floor_()


def average(gray: Tensor) -> Tensor:
    """The rounded mean of (V, h, w) levels, (V, 1, 1)."""
    pixels = gray.shape[-2] * gray.shape[-1]
    total = gray.to(torch.int32).sum((-2, -1), keepdim=True, dtype=torch.int32)
    return ((2 * total + pixels) // (2 * pixels)).to(torch.float32)


def blend(planes: Planes, degenerate: Planes, factor: Tensor) -> Planes:
    """degenerate + factor (planes - degenerate), cut to 0 to 255 and rounded down, as PIL does.

    The factor is a multiple of 2^-14 below 4; at 1 nothing changes.
    """
    factor = per_view(factor)
    red, green, blue = (
        (plane - origin).mul_(factor).add_(origin).floor_().clamp_(0, 255)
        for plane, origin in zip(planes, degenerate, strict=True)
    )
    return red, green, blue


def brightness(planes: Planes, factor: Tensor) -> Planes:
    """Blend with black."""
    black = torch.zeros_like(planes[0])
    return blend(planes, (black, black, black), factor)


def contrast(planes: Planes, factor: Tensor) -> Planes:
    """Blend with the mean gray level."""
    mean = average(luma(planes))
    return blend(planes, (mean, mean, mean), factor)


def saturation(planes: Planes, factor: Tensor) -> Planes:
    """Blend with the gray image."""
    gray = luma(planes)
    return blend(planes, (gray, gray, gray), factor)


def grayscale(planes: Planes) -> Planes:
    """The gray image, three times."""
    gray = luma(planes)
    return gray, gray, gray


def rotate_hue(planes: Planes, shift: Tensor) -> Planes:
    """To PIL's 8-bit hue, saturation and value, the hue moved modulo 256, and back."""
    red, green, blue = planes
    value = torch.maximum(torch.maximum(red, green), blue)
    spread = value - torch.minimum(torch.minimum(red, green), blue)
    # Sixths of the circle: hue / spread, counted from red, green or blue.
    from_blue = 4 * spread + red - green
    from_green = torch.where(green == value, 2 * spread + blue - red, from_blue)
    hue = torch.where(red == value, green - blue, from_green)
    circle = 6 * spread
    hue = torch.where(hue < 0, hue + circle, hue)
    hue = divide(255 * hue, circle.clamp(min=1))
    hue = hue + per_view(shift.to(torch.float32))
    sixth = 6 * (hue - 256 * (hue * 2.0**-8).floor_())
    strength = divide(255 * spread, value.clamp(min=1))

    # Each channel keeps its strength within a sixth of the circle, and has lost it after two.
    full, loss = 65025 * value + 32512, -value * strength

    def channel(lack: Tensor) -> Tensor:
        return torch.addcmul(full, lack.clamp_(0, 255), loss).mul_(1 / 65025).floor_()

    return (
        channel(510 - (sixth - 765).abs_()),
        channel((sixth - 510).abs_().sub_(255)),
        channel((sixth - 1020).abs_().sub_(255)),
    )


def jitter(planes: Planes, parameters: Parameters, recipe: Recipe) -> Planes:
    """Brightness, contrast, saturation and hue, in each view's own order, on bytes."""
    settings = (*parameters.factors.unbind(-1), parameters.hue)
    strengths = (recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue)
    steps: dict[int, Step] = {
        number: (operation, (settings[number],))
        for number, operation in enumerate((brightness, contrast, saturation, rotate_hue))
        if strengths[number] > 0  # a hue turned by nothing is rounded, and would still differ
    }
    for kind in parameters.order.unbind(-1):
        planes = apply_one(torch.where(parameters.jitter, kind, -1), steps, planes)
    return planes
