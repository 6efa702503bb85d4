"""The special functions as plain formulas of kappa and the Debye expansion of one order.

They know nothing of autograd or of arguments: :mod:`dsf.vmf.special` adds both. Notation: v is the
order the expansion is taken at, ``e.c`` the steps from there down to nu = p / 2 - 1, x = v / h,
y = kappa / h and d = h / v - 1 with h = sqrt(kappa^2 + v^2). While compiling, kappa is
one-dimensional.
"""

import math

import torch
from torch import Tensor

from dsf.vmf._debye import Coefficients, Expansion

# kappa^2 must stay finite. From here on A_p = 1 and Phi_p = kappa to the last digit, and 1 - A_p,
# A_p' and A_p'' fall like powers of 1 / kappa.
# A_p / kappa is 1 / p to the last digit below the smallest.
LARGEST = {torch.float64: 1e100, torch.float32: 1e15}
SMALLEST = 1e-15


def log_partition(kappa: Tensor, e: Expansion) -> Tensor:
    """Phi_p."""
    finite, _ = _finite(kappa)
    x, y, d = _geometry(finite, e.v)
    total = e.v * (d - torch.log1p(d / 2)) - 0.5 * torch.log1p(d) + d * x * _horner(e.Q, x)
    if e.steps:
        ratio = _ratio_at_top(x, y, e)
        for c in e.c:
            product = _once(finite * ratio)
            total = total + torch.log1p(product / c)
            ratio = finite / (c + product)
    return total + (kappa - finite)


def kappa_minus_log_partition(kappa: Tensor, e: Expansion) -> Tensor:
    """kappa - Phi_p."""
    kappa, excess = _finite(kappa)
    x, y, d = _geometry(kappa, e.v)
    # kappa - v d = v (y + 1 - x) / (1 + y), where 1 - x = d x. The logarithms of the steps are
    # paired with v log1p(d / 2), which they cancel for large kappa.
    half = d / 2
    total = e.v * (y + d * x) / (1 + y) + (e.v - e.steps) * torch.log1p(half)
    total = total + 0.5 * torch.log1p(d) - d * x * _horner(e.Q, x)
    if e.steps:
        ratio = _ratio_at_top(x, y, e)
        for c in e.c:
            product = _once(kappa * ratio)
            total = total + torch.log1p((half * c - product) / (c + product))
            ratio = kappa / (c + product)
    return total + (_nu(e) + 0.5) * excess.log()


def ratio(kappa: Tensor, e: Expansion) -> Tensor:
    """A_p."""
    kappa = kappa.clamp(max=LARGEST[kappa.dtype])
    near = _ratio_near(kappa, e)
    if not e.steps:
        return near
    # The roundings of all steps add up where A_p is near 1, but those of the deviation do not.
    far = kappa.clamp(min=1)
    return torch.where(near > 0.5, 1 - (_nu(e) + 0.5 + _deviation(far, e)) / far, near)


def one_minus_ratio(kappa: Tensor, e: Expansion) -> Tensor:
    """1 - A_p."""
    kappa, excess = _finite(kappa)
    if not e.steps:
        x, y, _ = _geometry(kappa, e.v)
        rest = x * (1 + x + y) / ((1 + x) * (1 + y))
        return (rest + y * x / e.v * (0.5 + x * _horner(e.S, x))) / excess
    a = _ratio_near(kappa, e)
    # Where A_p > 1/2 kappa is at least half of p, and the deviation is accurate.
    far = kappa.clamp(min=1)
    return torch.where(a > 0.5, (_nu(e) + 0.5 + _deviation(far, e)) / far, 1 - a) / excess


def for_inversion(kappa: Tensor, e: Expansion) -> tuple[Tensor, Tensor, Tensor]:
    """A_p, 1 - A_p where A_p > 1/2, and A_p' to within some fifty roundings, at little cost."""
    a = _once(_ratio_near(kappa.clamp(max=LARGEST[kappa.dtype]), e))
    if not e.steps:
        return a, one_minus_ratio(kappa, e), derivative(kappa, e)
    # The differential equation A' = 1 - A^2 - (p - 1) A / kappa, for large kappa in terms of the
    # deviation, kappa^2 A' = t^2 + 2 kappa deviation - deviation^2 with t = nu + 1/2.
    t = _nu(e) + 0.5
    far = _once(kappa.clamp(min=1))
    deviation = _once(_deviation(far, e))
    near_slope = 1 - a * a - 2 * t * a / kappa.clamp(min=SMALLEST)
    far_slope = (t * t + deviation * (2 * far - deviation)) / far / far
    slope = torch.where(a > 0.5, far_slope, near_slope)
    return a, (t + deviation) / far, _once(slope)


def derivative(kappa: Tensor, e: Expansion) -> Tensor:
    """A_p'."""
    kappa, excess = _finite(kappa)
    if not e.steps:
        x, _, _ = _geometry(kappa, e.v)
        return _derivative_at_top(x, e) / excess / excess
    # Measured: near kappa = p the plain recurrence, whose errors grow with kappa, and the
    # deviations, whose errors fall, are equally good.
    switch = 2 * _nu(e) + 3
    near, far = kappa.clamp(max=switch), kappa.clamp(min=switch)
    slope = torch.where(kappa > switch, _derivative_far(far, e), _derivative_near(near, e))
    return slope / excess / excess


def second_derivative(kappa: Tensor, e: Expansion) -> Tensor:
    """A_p'', in operations that autograd differentiates further."""
    kappa, excess = _finite(kappa)
    x, y, _ = _geometry(kappa, e.v)
    bend: Tensor = -(x.pow(3) * y / e.v**2) * ((2 + x) / (1 + x).square() + _horner(e.J, x) / e.v)
    if e.steps:
        ratio, slope = _ratio_at_top(x, y, e), _derivative_at_top(x, e)
        for c in e.c:
            denominator = _once(c + kappa * ratio)
            numerator = _once(c - kappa * kappa * slope)
            turn = numerator * (ratio + kappa * slope) / denominator
            bend = (-kappa * (2 * slope + kappa * bend) - 2 * turn) / denominator.square()
            slope = _once(numerator / denominator.square())
            ratio = _once(kappa / denominator)
    return bend / excess / excess / excess


def log_iv(x: Tensor, e: Expansion) -> Tensor:
    """log I_nu."""
    nu, whole = _nu(e), x
    if e.steps:
        power = nu * torch.log(x / 2) if nu else 0.0
        return power - math.lgamma(nu + 1) + log_partition(x, e)
    x, _ = _finite(x)
    h = _once((x.square() + nu * nu).sqrt())
    tail = _horner(e.D, _once(nu / h)) - 0.5 * torch.log(2 * math.pi * h)
    return h + nu * torch.log(x / (nu + h)) + tail + (whole - x)


def _nu(e: Expansion) -> float:
    return e.v - e.steps


def _finite(kappa: Tensor) -> tuple[Tensor, Tensor]:
    """kappa up to the largest, and how many times that it is, at least once."""
    largest = LARGEST[kappa.dtype]
    return kappa.clamp(max=largest), (kappa / largest).clamp(min=1)


def _geometry(kappa: Tensor, v: float) -> tuple[Tensor, Tensor, Tensor]:
    square = kappa.square()
    h = _once((square + v * v).sqrt())
    return _once(v / h), _once(kappa / h), _once(square / ((h + v) * v))


def _horner(coefficients: Coefficients, x: Tensor) -> Tensor:
    total = torch.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _ratio_at_top(x: Tensor, y: Tensor, e: Expansion) -> Tensor:
    return y * (1 / (1 + x) - x / e.v * (0.5 + x * _horner(e.S, x)))


def _ratio_near(kappa: Tensor, e: Expansion) -> Tensor:
    x, y, _ = _geometry(kappa, e.v)
    ratio = _ratio_at_top(x, y, e)
    for c in e.c:
        ratio = kappa / (c + kappa * ratio)
    return ratio.clamp(max=1)  # a rounding may pass it


def _derivative_at_top(x: Tensor, e: Expansion) -> Tensor:
    return x * x / e.v * (1 / (1 + x) + (0.5 - x * _horner(e.H, x)) / e.v)


def _derivative_near(kappa: Tensor, e: Expansion) -> Tensor:
    x, y, _ = _geometry(kappa, e.v)
    slope, ratio = _derivative_at_top(x, e), _ratio_at_top(x, y, e)
    for c in e.c:
        denominator = _once(c + kappa * ratio)
        slope = (c - kappa * kappa * slope) / denominator.square()
        ratio = kappa / denominator
    return slope


def _derivative_far(kappa: Tensor, e: Expansion) -> Tensor:
    # m = kappa^2 A' - nu - 1/2 is small, and the recurrence for it subtracts nothing large.
    x, y, _ = _geometry(kappa, e.v)
    m = -e.v * x - 0.5 * x * x - y * y * x * _horner(e.H, x)
    deviation = _deviation_at_top(x, y, e)
    for c in e.c:
        target = (c - 1) / 2  # nu + 1/2 of the order the step arrives at
        deviation = _once(deviation)
        w = _once(target - deviation)
        denominator = _once(kappa + w)
        m = -(m + target * w * (2 * kappa + w) / kappa / kappa) * (kappa / denominator).square()
        deviation = -(kappa * deviation + target * w) / denominator
    return (_nu(e) + 0.5 + m) / kappa / kappa


def _deviation(kappa: Tensor, e: Expansion) -> Tensor:
    """kappa (1 - A) - nu - 1/2, which falls like 1 / kappa."""
    x, y, _ = _geometry(kappa, e.v)
    deviation = _deviation_at_top(x, y, e)
    for c in e.c:
        target = (c - 1) / 2
        deviation = _once(deviation)
        numerator = (kappa - target) * deviation + target * target
        deviation = -numerator / (kappa + target - deviation)
    return deviation


def _deviation_at_top(x: Tensor, y: Tensor, e: Expansion) -> Tensor:
    return -e.v * x / (1 + y) - 0.5 * x * x + y * y * x * _horner(e.S, x)


def _once(x: Tensor) -> Tensor:
    # Inductor inlines a value into each of its uses. In a recurrence that doubles the code at
    # every step, and compilation takes minutes; it does not inline what a view is taken of.
    return x.as_strided(x.shape, x.stride()) if torch.compiler.is_compiling() else x
