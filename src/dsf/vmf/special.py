"""Special functions of the von Mises-Fisher distribution, exact over the whole range.

With ``nu = p / 2 - 1``, the density on the unit sphere of R^p is C_p(kappa) exp(kappa mu.x), and

    Phi_p(kappa) = log C_p(0) - log C_p(kappa) = log 0F1(; p/2; kappa^2 / 4)
    A_p(kappa)   = Phi_p'(kappa) = I_{nu+1}(kappa) / I_nu(kappa)
    A_p'(kappa)  = Phi_p''(kappa).

Method: the logarithmic Debye expansion at an order v >= 24 (12 in float32), arranged so that
Gamma functions and logarithms of kappa cancel on paper, followed for small p by backward
recurrence. The number of terms and steps depends on ``p`` and the precision alone: no loop looks
at data, so nothing synchronises with the device and ``torch.compile`` sees straight-line code.

Every function here

- takes kappa of any shape, 0 <= kappa <= 1e8 and beyond, and p from 2 to 65,536 and beyond;
- computes float64 in float64 and everything else in float32, and returns that precision;
- is differentiable any number of times. The first derivatives are as accurate as the functions;
- checks values eagerly on the CPU only, unless ``validate_args`` says otherwise
  (:mod:`dsf.vmf._checks`).

Accuracy is stated as the largest relative error against 30-digit references.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dsf.vmf._checks import as_floating, check_dimension, check_range, is_number, together
from dsf.vmf._debye import Coefficients, Expansion, expansion

__all__ = [
    "bessel_ratio",
    "bessel_ratio_derivative",
    "inverse_bessel_ratio",
    "kappa_minus_log_partition",
    "log_iv",
    "log_normalizer",
    "log_partition",
    "one_minus_bessel_ratio",
]


def log_partition(kappa: Tensor, p: int, *, validate_args: bool | None = None) -> Tensor:
    """Phi_p(kappa) = log C_p(0) - log C_p(kappa), the cumulant function; 0 at kappa = 0.

    Relative error below 1e-15 in float64 and 5e-7 in float32.

    >>> log_partition(torch.tensor([0.0, 404.55], dtype=torch.float64), 128)
    tensor([  0.0000, 262.7546], dtype=torch.float64)
    """
    return _special("log_partition", kappa, p, validate_args)


def kappa_minus_log_partition(
    kappa: Tensor, p: int, *, validate_args: bool | None = None
) -> Tensor:
    """Return kappa - Phi_p(kappa), which grows like (p - 1)/2 log kappa, without cancellation."""
    return _special("kappa_minus_log_partition", kappa, p, validate_args)


def log_normalizer(kappa: Tensor, p: int, *, validate_args: bool | None = None) -> Tensor:
    """log C_p(kappa), the logarithm of the density's normalising constant.

    At kappa = 0 it is minus the logarithm of the sphere's area. The error is a few roundings of
    the larger of |log C_p(0)| and Phi_p(kappa).
    """
    return log_uniform_density(check_dimension(p)) - log_partition(
        kappa, p, validate_args=validate_args
    )


def bessel_ratio(kappa: Tensor, p: int, *, validate_args: bool | None = None) -> Tensor:
    """A_p(kappa) = I_{p/2}(kappa) / I_{p/2-1}(kappa), the mean of mu.x; in [0, 1).

    Relative error below 1e-15 in float64 and 5e-7 in float32.
    """
    return _special("bessel_ratio", kappa, p, validate_args)


def one_minus_bessel_ratio(kappa: Tensor, p: int, *, validate_args: bool | None = None) -> Tensor:
    """Return 1 - A_p(kappa), accurate also where A_p rounds to 1."""
    return _special("one_minus_bessel_ratio", kappa, p, validate_args)


def bessel_ratio_derivative(kappa: Tensor, p: int, *, validate_args: bool | None = None) -> Tensor:
    """A_p'(kappa) = 1 - A_p^2 - (p - 1) A_p / kappa, the variance of mu.x; 1 / p at kappa = 0."""
    return _special("bessel_ratio_derivative", kappa, p, validate_args)


def inverse_bessel_ratio(
    r: Tensor, p: int, one_minus_r: Tensor | None = None, *, validate_args: bool | None = None
) -> Tensor:
    """Return the kappa with A_p(kappa) = r: Newton's method from Banerjee's approximation.

    0 at r = 0, infinite at r = 1 (and where rounding has passed 1). Near 1, ``r`` cannot hold what kappa depends on: pass
    ``one_minus_r`` too where it is known better than by subtraction. It sharpens the value
    only; the gradient, 1 / A_p', goes to ``r``.
    """
    p = check_dimension(p)
    if one_minus_r is None:
        r = as_floating("r", r)
        one_minus_r = 1 - r
    else:
        r, one_minus_r = together(r=r, one_minus_r=one_minus_r)
        check_range("one_minus_r", one_minus_r, 0, 1, validate_args)
    check_range("r", r, 0, 1, validate_args, slack=16 * torch.finfo(r.dtype).eps)
    result: Tensor = _InverseBesselRatio.apply(r, one_minus_r.detach(), p)
    return result


def log_iv(nu: float, x: Tensor, *, validate_args: bool | None = None) -> Tensor:
    """log I_nu(x) of the modified Bessel function, for real nu >= 0 and x >= 0.

    The error is a few roundings of the larger of x and nu log(2 nu / x), so relative to the
    value it grows where the value passes through zero.
    """
    if not is_number(nu) or not 0 <= nu < math.inf:
        raise ValueError(f"nu must be a finite Python number >= 0; got {nu!r}")
    x = as_floating("x", x)
    check_range("x", x, 0, math.inf, validate_args)
    # Through hexadecimal and back, a number that the compiler treats as symbolic is made concrete.
    return _apply(x, float.fromhex(float(nu).hex()), "log_iv")


def ratio_over_kappa(kappa: Tensor, p: int) -> Tensor:
    """A_p(kappa) / kappa, 1 / p at kappa = 0: one step of the recurrence from p + 2."""
    return 1 / (p + kappa * bessel_ratio(kappa, p + 2, validate_args=False))


def log_uniform_density(p: int) -> float:
    """log C_p(0) = log Gamma(p/2) - log 2 - p/2 log pi."""
    return math.lgamma(p / 2) - math.log(2) - p / 2 * math.log(math.pi)


def _special(name: str, kappa: Tensor, p: int, validate_args: bool | None) -> Tensor:
    p = check_dimension(p)
    kappa = as_floating("kappa", kappa)
    check_range("kappa", kappa, 0, math.inf, validate_args)
    return _apply(kappa, p / 2 - 1, name)


def _apply(kappa: Tensor, nu: float, name: str) -> Tensor:
    result: Tensor = _Special.apply(kappa, nu, name)
    return result


class _Special(torch.autograd.Function):
    """A function of ``_VALUES`` whose derivative is the one ``_DERIVATIVES`` names for it.

    Plain autograd through the formulas would lose every digit at large kappa.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(kappa: Tensor, nu: float, name: str) -> Tensor:
        return _VALUES[name](kappa, _expansion(nu, kappa.dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, str], output: Tensor) -> None:
        kappa, ctx.nu, ctx.name = inputs
        ctx.save_for_backward(kappa)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (kappa,) = ctx.saved_tensors
        return gradient * _DERIVATIVES[ctx.name](kappa, ctx.nu), None, None


class _InverseBesselRatio(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(r: Tensor, one_minus_r: Tensor, p: int) -> Tensor:
        return _newton(r, one_minus_r, p)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        ctx.p = inputs[2]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (kappa,) = ctx.saved_tensors
        slope = bessel_ratio_derivative(kappa, ctx.p, validate_args=False)
        return gradient / slope, None, None


def _newton(r: Tensor, one_minus_r: Tensor, p: int) -> Tensor:
    e = _expansion(p / 2 - 1, r.dtype)
    double = r.dtype is torch.float64
    kappa = banerjee(r, one_minus_r * (1 + r), p)
    kappa = kappa.clamp(max=_LARGEST[r.dtype])
    # Measured: the start is worst at small p (6 % at p = 2), and every step squares the error.
    for _ in range((4 if p < 16 else 3 if p < 1024 else 2) - (0 if double else 1)):
        residual = torch.where(
            r > 0.5, _one_minus_ratio(kappa, e) - one_minus_r, r - _ratio(kappa, e)
        )
        kappa = kappa + residual / _derivative(kappa, e)
    return torch.where(one_minus_r > 0, kappa, math.inf)


def banerjee(r: Tensor, one_minus_r_squared: Tensor, p: int) -> Tensor:
    """The approximation kappa = r (p - r^2) / (1 - r^2) of Banerjee et al. (2005)."""
    return r * (p - r.square()) / one_minus_r_squared


# --- The formulas. Each takes kappa and the expansion, and knows nothing of autograd. ---


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _expansion(nu: float, dtype: torch.dtype) -> Expansion:
    # The compiler would trace the rational arithmetic behind it, for minutes.
    return expansion(nu, dtype)


# kappa^2 must stay finite. From here on A_p = 1 and Phi_p = kappa to the last digit.
_LARGEST = {torch.float64: 1e100, torch.float32: 1e15}


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


def _log_partition(kappa: Tensor, e: Expansion) -> Tensor:
    finite = kappa.clamp(max=_LARGEST[kappa.dtype])
    x, y, d = _geometry(finite, e.v)
    total = e.v * (d - torch.log1p(d / 2)) - 0.5 * torch.log1p(d) + d * x * _horner(e.Q, x)
    if e.steps:
        ratio = _ratio_at_top(x, y, e)
        for c in e.c:
            total = total + torch.log1p(finite * ratio / c)
            ratio = finite / (c + finite * ratio)
    return total + (kappa - finite)


def _kappa_minus_log_partition(kappa: Tensor, e: Expansion) -> Tensor:
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


def _ratio(kappa: Tensor, e: Expansion) -> Tensor:
    kappa = kappa.clamp(max=_LARGEST[kappa.dtype])
    x, y, _ = _geometry(kappa, e.v)
    ratio = _ratio_at_top(x, y, e)
    for c in e.c:
        ratio = kappa / (c + kappa * ratio)
    return ratio.clamp(max=1)  # a rounding may pass it


def _one_minus_ratio(kappa: Tensor, e: Expansion) -> Tensor:
    kappa = kappa.clamp(max=_LARGEST[kappa.dtype])
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


def _derivative(kappa: Tensor, e: Expansion) -> Tensor:
    kappa = kappa.clamp(max=_LARGEST[kappa.dtype])
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


def _second_derivative(kappa: Tensor, nu: float) -> Tensor:
    """A_p'', in operations that autograd differentiates further."""
    e = _expansion(nu, kappa.dtype)
    kappa = kappa.clamp(max=_LARGEST[kappa.dtype])
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


def _log_iv(x: Tensor, e: Expansion) -> Tensor:
    nu = e.v - e.steps
    if e.steps:
        power = nu * torch.log(x / 2) if nu else 0.0
        return power - math.lgamma(nu + 1) + _log_partition(x, e)
    h = (x.square() + nu * nu).sqrt()
    tail = _horner(e.D, nu / h) - 0.5 * torch.log(2 * math.pi * h)
    return h + nu * torch.log(x / (nu + h)) + tail


_VALUES: dict[str, Callable[[Tensor, Expansion], Tensor]] = {
    "log_partition": _log_partition,
    "kappa_minus_log_partition": _kappa_minus_log_partition,
    "bessel_ratio": _ratio,
    "one_minus_bessel_ratio": _one_minus_ratio,
    "bessel_ratio_derivative": _derivative,
    "log_iv": _log_iv,
}


_DERIVATIVES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "log_partition": lambda k, nu: _apply(k, nu, "bessel_ratio"),
    "kappa_minus_log_partition": lambda k, nu: _apply(k, nu, "one_minus_bessel_ratio"),
    "bessel_ratio": lambda k, nu: _apply(k, nu, "bessel_ratio_derivative"),
    "one_minus_bessel_ratio": lambda k, nu: -_apply(k, nu, "bessel_ratio_derivative"),
    "bessel_ratio_derivative": _second_derivative,
    "log_iv": lambda k, nu: _apply(k, nu, "bessel_ratio") + (nu / k if nu else 0.0),
}
