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

- takes kappa of any shape, from 0 to infinity, and p from 2 to 65,536 and beyond;
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

from dsf.vmf import _formulas as formulas
from dsf.vmf._checks import as_floating, check_dimension, check_range, is_number, together
from dsf.vmf._debye import Expansion, expansion

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
    tensor([  0.0000, 262.2311], dtype=torch.float64)
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
    """Return the kappa with A_p(kappa) = r: Halley's method from Banerjee's approximation.

    0 at r = 0, infinite at r = 1 and where a rounding has passed 1. Near 1, ``r`` cannot hold
    what kappa depends on: pass ``one_minus_r`` too where it is known better than by subtraction.
    It sharpens the value only; the gradient, 1 / A_p', goes to ``r``.
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
        return _pointwise(_VALUES[name], _expansion(nu, kappa.dtype), kappa)

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
        e = _expansion(p / 2 - 1, r.dtype)
        return _pointwise(lambda r, rest, e: _solve(r, rest, p, e), e, r, one_minus_r)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        ctx.p = inputs[2]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (kappa,) = ctx.saved_tensors
        slope = bessel_ratio_derivative(kappa, ctx.p, validate_args=False)
        return gradient / slope, None, None


def _solve(r: Tensor, one_minus_r: Tensor, p: int, e: Expansion) -> Tensor:
    """Halley's method: the step -f / f' of Newton, divided by 1 + step f'' / (2 f')."""
    start = banerjee(r, one_minus_r * (1 + r), p)
    kappa = start.clamp(max=formulas.LARGEST[r.dtype])
    # The start is worst at small p, where it misses by 6 %; every step cubes the error.
    for _ in range(2 if p < 16 or r.dtype is torch.float64 else 1):
        ratio, rest, slope = formulas.for_inversion(kappa, e)
        step = torch.where(r > 0.5, rest - one_minus_r, r - ratio) / slope
        # f'' / f' from the differential equation A' = 1 - A^2 - (p - 1) A / kappa. It cancels at
        # both ends, where the step is too small for that to matter.
        safe = kappa.clamp(min=formulas.SMALLEST)
        bend = -2 * ratio - (p - 1) * (1 - ratio / safe / slope) / safe
        kappa = kappa + step / (1 + 0.5 * step * bend)
    kappa = torch.where(start > formulas.LARGEST[r.dtype], start, kappa)  # exact from there on
    return torch.where(one_minus_r > 0, kappa, math.inf)


def banerjee(r: Tensor, one_minus_r_squared: Tensor, p: int) -> Tensor:
    """The approximation kappa = r (p - r^2) / (1 - r^2) of Banerjee et al. (2005)."""
    return r * (p - r.square()) / one_minus_r_squared


def _expansion(nu: float, dtype: torch.dtype) -> Expansion:
    return expansion(nu, dtype)


# The compiler would trace the rational arithmetic behind it, for minutes. This is all that
# torch.compiler.assume_constant_result does, but calling that imports the compiler, for seconds.
_expansion._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _pointwise(function: Callable[..., Tensor], e: Expansion, *tensors: Tensor) -> Tensor:
    """Apply a formula; flat while compiling, so that one layout serves every shape."""
    if not torch.compiler.is_compiling():
        return function(*tensors, e)
    return function(*(tensor.reshape(-1) for tensor in tensors), e).reshape(tensors[0].shape)


_VALUES: dict[str, Callable[[Tensor, Expansion], Tensor]] = {
    "log_partition": formulas.log_partition,
    "kappa_minus_log_partition": formulas.kappa_minus_log_partition,
    "bessel_ratio": formulas.ratio,
    "one_minus_bessel_ratio": formulas.one_minus_ratio,
    "bessel_ratio_derivative": formulas.derivative,
    "log_iv": formulas.log_iv,
}


def _second_derivative(kappa: Tensor, nu: float) -> Tensor:
    return _pointwise(formulas.second_derivative, _expansion(nu, kappa.dtype), kappa)


_DERIVATIVES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "log_partition": lambda k, nu: _apply(k, nu, "bessel_ratio"),
    "kappa_minus_log_partition": lambda k, nu: _apply(k, nu, "one_minus_bessel_ratio"),
    "bessel_ratio": lambda k, nu: _apply(k, nu, "bessel_ratio_derivative"),
    "one_minus_bessel_ratio": lambda k, nu: -_apply(k, nu, "bessel_ratio_derivative"),
    "bessel_ratio_derivative": _second_derivative,
    "log_iv": lambda k, nu: _apply(k, nu, "bessel_ratio") + (nu / k if nu else 0.0),
}
