"""The special functions as plain formulas of kappa and the Debye expansion of one order.

They know nothing of autograd or of arguments: :mod:`dsf.vmf.special` adds both. Notation: v is the
order the expansion is taken at, ``e.c`` the steps from there down to nu = p / 2 - 1, x = v / h,
y = kappa / h and d = h / v - 1 with h = sqrt(kappa^2 + v^2).
"""

import math

import torch
from torch import Tensor

from dsf.vmf._debye import Coefficients, Expansion

# kappa^2 must stay finite. From here on A_p = 1 and Phi_p = kappa to the last digit.
LARGEST = {torch.float64: 1e100, torch.float32: 1e15}


def _geometry(kappa: Tensor, v: float) -> tuple[Tensor, Tensor, Tensor]:
    """x = v / h, y = kappa / h and d = h / v - 1 for h = sqrt(kappa^2 + v^2)."""
    square = kappa.square()
    h = (square + v * v).sqrt()
    return v / h, kappa / h, square / ((h + v) * v)


def _horner(coefficients: Coefficients, x: Tensor) -> Tensor:
    total = torch.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _ratio_at_top(x: Tensor, y: Tensor, e: Expansion) -> Tensor:
    return y * (1 / (1 + x) - x / e.v * (0.5 + x * _horner(e.S, x)))


def _derivative_at_top(x: Tensor, e: Expansion) -> Tensor:
    return x * x / e.v * (1 / (1 + x) + (0.5 - x * _horner(e.H, x)) / e.v)


def log_partition(kappa: Tensor, e: Expansion) -> Tensor:
    """Phi_p."""
    finite = kappa.clamp(max=LARGEST[kappa.dtype])
    x, y, d = _geometry(finite, e.v)
    total = e.v * (d - torch.log1p(d / 2)) - 0.5 * torch.log1p(d) + d * x * _horner(e.Q, x)
    if e.steps:
        ratio = _ratio_at_top(x, y, e)
        for c in e.c:
            total = total + torch.log1p(finite * ratio / c)
            ratio = finite / (c + finite * ratio)
    return total + (kappa - finite)


def kappa_minus_log_partition(kappa: Tensor, e: Expansion) -> Tensor:
    """kappa - Phi_p."""
    x, y, d = _geometry(kappa, e.v)
    # kappa - v d = v (y + 1 - x) / (1 + y), where 1 - x = d x. The logarithms of the steps are
    # paired with v log1p(d / 2), which they cancel for large kappa.
    half = d / 2
    total = e.v * (y + d * x) / (1 + y) + (e.v - e.steps) * torch.log1p(half)
    total = total + 0.5 * torch.log1p(d) - d * x * _horner(e.Q, x)
    if e.steps:
        ratio = _ratio_at_top(x, y, e)
        for c in e.c:
            product = kappa * ratio
            total = total + torch.log1p((half * c - product) / (c + product))
            ratio = kappa / (c + product)
    return total


def ratio(kappa: Tensor, e: Expansion) -> Tensor:
    """A_p."""
    kappa = kappa.clamp(max=LARGEST[kappa.dtype])
    x, y, _ = _geometry(kappa, e.v)
    ratio = _ratio_at_top(x, y, e)
    for c in e.c:
        ratio = kappa / (c + kappa * ratio)
    return ratio.clamp(max=1)  # a rounding may pass it


def one_minus_ratio(kappa: Tensor, e: Expansion) -> Tensor:
    """1 - A_p."""
    kappa = kappa.clamp(max=LARGEST[kappa.dtype])
    if not e.steps:
        return _one_minus_ratio_plain(kappa, e)
    switch = _switch(e)
    small, large = kappa.clamp(max=switch), kappa.clamp(min=switch)
    deviation, _ = _deviations(large, e)
    far = (e.v - e.steps + 0.5 + deviation) / large
    return torch.where(kappa > switch, far, _one_minus_ratio_plain(small, e))


def _one_minus_ratio_plain(kappa: Tensor, e: Expansion) -> Tensor:
    x, y, _ = _geometry(kappa, e.v)
    rest = x * (1 + x + y) / ((1 + x) * (1 + y)) + y * x / e.v * (0.5 + x * _horner(e.S, x))
    for c in e.c:
        numerator = c - kappa * rest
        rest = numerator / (kappa + numerator)
    return rest


def derivative(kappa: Tensor, e: Expansion) -> Tensor:
    """A_p'."""
    kappa = kappa.clamp(max=LARGEST[kappa.dtype])
    if not e.steps:
        return _derivative_plain(kappa, e)
    switch = _switch(e)
    small, large = kappa.clamp(max=switch), kappa.clamp(min=switch)
    _, deviation = _deviations(large, e)
    far = (e.v - e.steps + 0.5 + deviation) / large / large
    return torch.where(kappa > switch, far, _derivative_plain(small, e))


def _derivative_plain(kappa: Tensor, e: Expansion) -> Tensor:
    x, y, _ = _geometry(kappa, e.v)
    slope = _derivative_at_top(x, e)
    if e.steps:
        ratio = _ratio_at_top(x, y, e)
        for c in e.c:
            denominator = c + kappa * ratio
            slope = (c - kappa * kappa * slope) / (denominator * denominator)
            ratio = kappa / denominator
    return slope


def _switch(e: Expansion) -> float:
    # Measured: near kappa = p the plain recurrence, whose errors grow with kappa, and the
    # deviations, whose errors fall, are equally good.
    return 2 * (e.v - e.steps) + 3


def _deviations(kappa: Tensor, e: Expansion) -> tuple[Tensor, Tensor]:
    """kappa (1 - A) - nu - 1/2 and kappa^2 A' - nu - 1/2, small at large kappa."""
    x, y, _ = _geometry(kappa, e.v)
    first = -e.v * x / (1 + y) - 0.5 * x * x + y * y * x * _horner(e.S, x)
    second = -e.v * x - 0.5 * x * x - y * y * x * _horner(e.H, x)
    for c in e.c:
        target = (c - 1) / 2  # nu + 1/2 of the order the step arrives at
        w = target - first
        denominator = kappa + w
        second = (
            -(second + target * w * (2 * kappa + w) / kappa / kappa)
            * (kappa / denominator).square()
        )
        first = -(kappa * first + target * w) / denominator
    return first, second


def second_derivative(kappa: Tensor, e: Expansion) -> Tensor:
    """A_p'', in operations that autograd differentiates further."""
    kappa = kappa.clamp(max=LARGEST[kappa.dtype])
    x, y, _ = _geometry(kappa, e.v)
    bend: Tensor = -(x.pow(3) * y / e.v**2) * ((2 + x) / (1 + x).square() + _horner(e.J, x) / e.v)
    if e.steps:
        ratio, slope = _ratio_at_top(x, y, e), _derivative_at_top(x, e)
        for c in e.c:
            denominator = c + kappa * ratio
            numerator = c - kappa * kappa * slope
            bend = (
                -kappa * (2 * slope + kappa * bend)
                - 2 * numerator * (ratio + kappa * slope) / denominator
            ) / denominator.square()
            slope = numerator / denominator.square()
            ratio = kappa / denominator
    return bend


def log_iv(x: Tensor, e: Expansion) -> Tensor:
    """log I_nu."""
    nu = e.v - e.steps
    if e.steps:
        power = nu * torch.log(x / 2) if nu else 0.0
        return power - math.lgamma(nu + 1) + log_partition(x, e)
    h = (x.square() + nu * nu).sqrt()
    tail = _horner(e.D, nu / h) - 0.5 * torch.log(2 * math.pi * h)
    return h + nu * torch.log(x / (nu + h)) + tail
