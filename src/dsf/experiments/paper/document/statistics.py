"""How sure a difference is."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

# The 97.5 % quantiles of Student's t distribution for 1 to 10 degrees of freedom.
_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_NORMAL = 1.9600


class Interval(NamedTuple):
    """A mean and the bounds of its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def paired_interval(one: Sequence[float], other: Sequence[float]) -> Interval:
    """The mean of paired differences, with its 95 % interval by the t distribution.

    Example:
        >>> interval = paired_interval([3.0, 5.0, 4.0], [1.0, 2.0, 3.0])
        >>> [round(bound, 3) for bound in interval]
        [2.0, -0.484, 4.484]
    """
    differences = [a - b for a, b in zip(one, other, strict=True)]
    freedom = len(differences) - 1
    if not 1 <= freedom <= len(_QUANTILES):
        most = len(_QUANTILES) + 1
        raise ValueError(f"there must be 2 to {most} pairs; got {len(differences)}")
    mean = fmean(differences)
    reach = _QUANTILES[freedom - 1] * stdev(differences) / math.sqrt(len(differences))
    return Interval(mean, mean - reach, mean + reach)


def noise(share: float, images: float) -> float:
    """How far two shares, in per cent, of so many test images differ by chance of the images.

    1.96 standard errors of the difference of two independent shares. On the same images the errors
    of two encoders go together, so that the true figure is lower; what another seed would give is
    not in it.

    Example:
        >>> round(noise(90.0, 10_000), 2)
        0.83
    """
    part = min(max(share / 100, 0.0), 1.0)
    return 100 * _NORMAL * math.sqrt(2 * part * (1 - part) / images)
