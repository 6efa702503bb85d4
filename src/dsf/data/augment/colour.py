"""Operations on the colours of each pixel, with PIL's rounding: jitter and grayscale.

All but ``jitter`` take planes of integers 0 to 255 in float32, which they may overwrite, and
return such planes; see ``fixed`` for why.
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
    weights = (19595 * 2.0**-16, 38470 * 2.0**-16, 7471 * 2.0**-16)
    weighted = (weights[0] * red).add_(green, alpha=weights[1]).add_(blue, alpha=weights[2])
    return weighted.add_(0.5).floor_()


def average(gray: Tensor) -> Tensor:
    """The rounded mean of (V, h, w) levels, (V, 1, 1)."""
    pixels = gray.shape[-2] * gray.shape[-1]
    wide = torch.int32 if pixels <= 2**22 else torch.int64  # twice the sum is to fit
    total = gray.to(torch.int32).sum((-2, -1), keepdim=True, dtype=wide)
    return ((2 * total + pixels) // (2 * pixels)).to(torch.float32)


def blend(planes: Planes, degenerate: Planes, factor: Tensor) -> Planes:
    """factor planes + (1 - factor) degenerate, cut to 0 to 255 and rounded down, as PIL does.

    The factor is a multiple of 2^-14 below 4; at 1 nothing changes.
    """
    rest = 1 - per_view(factor)
    red, green, blue = (
        _add_share(plane, factor, origin * rest)
        for plane, origin in zip(planes, degenerate, strict=True)
    )
    return red, green, blue


def brightness(planes: Planes, factor: Tensor) -> Planes:
    """Blend with black."""
    factor = per_view(factor)
    red, green, blue = (plane.mul_(factor).clamp_(max=255).floor_() for plane in planes)
    return red, green, blue


def contrast(planes: Planes, factor: Tensor) -> Planes:
    """Blend with the mean gray level."""
    return _blend_with_one(planes, average(luma(planes)), factor)


def saturation(planes: Planes, factor: Tensor) -> Planes:
    """Blend with the gray image."""
    return _blend_with_one(planes, luma(planes), factor)


def _blend_with_one(planes: Planes, origin: Tensor, factor: Tensor) -> Planes:
    share = origin * (1 - per_view(factor))
    red, green, blue = (_add_share(plane, factor, share) for plane in planes)
    return red, green, blue


def _add_share(plane: Tensor, factor: Tensor, share: Tensor) -> Tensor:
    return plane.mul_(per_view(factor)).add_(share).clamp_(0, 255).floor_()


def grayscale(planes: Planes) -> Planes:
    """The gray image, three times."""
    gray = luma(planes)
    return gray, gray, gray


def rotate_hue(planes: Planes, shift: Tensor) -> Planes:
    """To PIL's 8-bit hue, saturation and value, the hue moved modulo 256, and back."""
    red, green, blue = planes
    value = torch.maximum(red, green).maximum(blue)
    least = torch.minimum(red, green).minimum(blue)
    spread = value - least
    # Half the circle is 3 spread. From red through green to its end the hue is the sum of what
    # red lacks and what the others have above the least; on the other side it is the mirror image.
    half = 3 * spread
    way = (value - red).add_(green).add_(blue).add_(least, alpha=-2).sub_(half)
    side = (green - blue).add_(0.5).clamp_(-0.5, 0.5)  # no comparison: on a CPU those are slow
    hue = torch.addcmul(half, way, side, value=2)
    hue = divide(hue.mul_(255), half.mul_(2).clamp_(min=1))
    hue.add_(per_view(shift.to(torch.float32)))
    sixth = hue.add_((hue * 2.0**-8).floor_(), alpha=-256).mul_(6)
    strength = divide(255 * spread, value.clamp(min=1))

    # Each channel keeps its strength within a sixth of the circle, and has lost it after two.
    loss, full = strength.mul_(value), value.mul_(65025).add_(32512)

    def channel(lack: Tensor) -> Tensor:
        return lack.clamp_(0, 255).mul_(loss).sub_(full).mul_(-1 / 65025).floor_()

    return (
        channel((sixth - 765).abs_().neg_().add_(510)),
        channel((sixth - 510).abs_().sub_(255)),
        channel((sixth - 1020).abs_().sub_(255)),
    )


def jitter(planes: Planes, parameters: Parameters, recipe: Recipe) -> Planes:
    """Brightness, contrast, saturation and hue, in each view's own order."""
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
