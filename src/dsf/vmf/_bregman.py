"""Bregman divergences of the log-partition function, accurate relative to themselves.

For nearby concentrations the difference Phi(k + s) - Phi(k) - A(k) s is an integral of A_p', which
has no cancellation; for distant ones it is a difference of kappa - Phi, which has little.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dsf.vmf.special import (
    bessel_ratio,
    bessel_ratio_derivative,
    kappa_minus_log_partition,
    one_minus_bessel_ratio,
)


def kl(k: Tensor, other: Tensor, step: Tensor, gap: Tensor, p: int) -> Tensor:
    """KL from concentration k to other, where step = other - k is known to its last digit."""
    psi = kappa_minus_log_partition(k, p, validate_args=False)
    psi = psi - kappa_minus_log_partition(other, p, validate_args=False)
    far = psi + one_minus_bessel_ratio(k, p, validate_args=False) * step
    near = step.square() * integral(k, step, p, lambda u: 1 - u)
    radial = torch.where(is_near(k, other, step, p), near, far).clamp(min=0)
    return radial + bessel_ratio(k, p, validate_args=False) * other * gap


def is_near(k: Tensor, other: Tensor, step: Tensor, p: int) -> Tensor:
    # Half the distance from k to the nearest singularity of A_p', which lies on the imaginary axis.
    return step.abs() <= 0.5 * (torch.minimum(k, other).square() + (p / 2 + 1) ** 2).sqrt()


def integral(k: Tensor, step: Tensor, p: int, weight: Callable[[float], float]) -> Tensor:
    """Integral over u in [0, 1] of weight(u) A_p'(k + u step), by Gauss-Legendre quadrature."""
    total = torch.zeros_like(k)
    for u, w in _RULES[k.dtype]:
        slope = bessel_ratio_derivative(k + u * step, p, validate_args=False)
        total = total + w * weight(u) * slope
    return total


def _gauss_legendre(nodes: int) -> tuple[tuple[float, float], ...]:
    """Points and weights on [0, 1]: the roots x of P_n, and 1 / ((1 - x^2) P_n'(x)^2)."""
    rule = []
    for number in range(nodes, 0, -1):
        x = math.cos(math.pi * (number - 0.25) / (nodes + 0.5))
        for _ in range(6):  # Newton's method, which doubles the digits: the start has two
            value, slope = _legendre(nodes, x)
            x -= value / slope
        _, slope = _legendre(nodes, x)
        rule.append(((1 + x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return tuple(rule)


def _legendre(n: int, x: float) -> tuple[float, float]:
    """P_n(x) and its derivative, by the recurrence (k + 1) P_k+1 = (2 k + 1) x P_k - k P_k-1."""
    before, value = 1.0, x
    for k in range(1, n):
        before, value = value, ((2 * k + 1) * x * value - k * before) / (k + 1)
    return value, n * (before - x * value) / (1 - x * x)


_RULES = {torch.float64: _gauss_legendre(9), torch.float32: _gauss_legendre(5)}


def mixture(k_i: Tensor, k_j: Tensor, gap: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    """|theta_m|, |theta_m| - k_i and 1 - cos(m, i) of alpha theta_i + (1 - alpha) theta_j.

    Each is accurate relative to itself, also where theta_i and theta_j nearly coincide.
    """
    beta = 1 - alpha
    along = alpha * k_i + beta * (k_j - k_j * gap)
    across = (beta * k_j).square() * gap * (2 - gap)
    m = (along.square() + across).sqrt()
    step = k_j - k_i
    squares = beta * (beta * step * (k_j + k_i) + 2 * alpha * k_i * (step - k_j * gap))
    shift = squares / _nonzero(m + k_i)
    cos = along / _nonzero(m)
    gap_i = torch.where(along > 0, across / _nonzero(m.square()) / (1 + cos.abs()), 1 - cos)
    return m, shift, gap_i


def _nonzero(x: Tensor) -> Tensor:
    # Where a vector vanishes its direction is free: the quotient is multiplied by 0 later.
    return torch.where(x > 0, x, 1)
