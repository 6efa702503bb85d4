"""PIL's Gaussian blur: three box blurs along rows, three along columns.

A box of fractional radius r = l + a has 2 l + 1 full pixels and two of weight a at its ends; l and
a are chosen so that three boxes have the variance radius^2 (Gwosdek et al., 2011, equations 7, 11
and 14). Levels are rounded after each box, and the edge pixel continues beyond the edge.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from dsf.data.augment.fixed import per_view
from dsf.data.augment.planes import Planes, eager_on_cpu

_PASSES = 3
_BITS = 16  # with 8 of a level, what float32 holds exactly


def box_reach(radius: float) -> int:
    """How many pixels a box of the blur reaches to each side, at most."""
    return math.floor(_whole_radius(radius**2 / _PASSES)) + 1


def _whole_radius(variance: float) -> float:
    return (math.sqrt(12 * variance + 1) - 1) / 2


def box_weights(radius: Tensor, reach: int) -> Tensor:
    """(V, reach + 1) weights of the pixels at distance 0, 1, ...: multiples of 2^-16.

    A radius of 0 changes nothing.
    """
    variance = radius.to(torch.float64) ** 2 / _PASSES
    whole = ((12 * variance + 1).sqrt().sub(1) / 2).floor()
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance)
    part = part / (6 * (variance - (whole + 1) ** 2))
    unit = 1 / (2 * (whole + part) + 1)
    outer = []
    for distance in range(1, reach + 1):
        full, partial = whole >= distance, whole + 1 == distance
        weight = torch.where(full, unit, torch.where(partial, unit * part, 0.0))
        outer.append((weight * 2.0**_BITS + 0.5).floor().to(torch.float32))
    sides = torch.stack(outer, dim=-1)
    centre = 2.0**_BITS - 2 * sides.sum(-1, keepdim=True)
    return torch.cat([centre, sides], dim=-1) * 2.0**-_BITS


def gaussian_blur(planes: Planes, box: Tensor) -> Planes:
    """Blur planes of integers in float32 by the (V, reach + 1) weights of ``box_weights``."""
    eager = eager_on_cpu(box)
    if eager:  # two boxes in three reach no further than 1
        box = box[:, : int(box.any(0).sum())]
    weights = [per_view(weight) for weight in box.unbind(-1)]

    def blurred(plane: Tensor) -> Tensor:
        for axis in (-1, -2):
            for _ in range(_PASSES):
                plane = _box(plane, weights, axis)
        return plane

    # Long arrays keep several cores busy; compiled, three are as good as one.
    red, green, blue = blurred(torch.stack(planes)) if eager else map(blurred, planes)
    return red, green, blue


def _box(plane: Tensor, weights: list[Tensor], axis: int) -> Tensor:
    reach, length = len(weights) - 1, plane.shape[axis]
    sides = (reach, reach, 0, 0) if axis == -1 else (0, 0, reach, reach)
    extended = pad(plane, sides, mode="replicate")
    total = (weights[0] * plane).add_(0.5 - 2.0**-_BITS)  # ties go down, as in PIL
    for distance in range(1, reach + 1):
        before = extended.narrow(axis, reach - distance, length)
        after = extended.narrow(axis, reach + distance, length)
        total.addcmul_(before + after, weights[distance])
    return total.floor_()
