"""Bregman divergences of the log-partition function, accurate relative to themselves.

The difference Phi(k + s) - Phi(k) - A(k) s is an integral of A_p', which has no cancellation; for
concentrations many times larger or smaller it is a difference of kappa - Phi, which has little.

With w = p / 2 + 1 the singularities of A_p' lie on the imaginary axis beyond +-i w. In terms of
tau, t = w sinh(tau), they are at least pi / 2 away from the real axis, wherever on it the interval
lies, so that the error of Gauss-Legendre quadrature depends on the length of the interval alone.
"""

import math
from collections.abc import Iterator

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
    length = _length(k, other, step, p)
    near = torch.zeros_like(length)
    for slope, distance in _slopes(k, other, step, length, p):
        near = near + slope * distance
    radial = torch.where(length <= _LONGEST[k.dtype], near, far).clamp(min=0)
    return radial + bessel_ratio(k, p, validate_args=False) * other * gap


def ratio_difference(k: Tensor, other: Tensor, step: Tensor, p: int) -> Tensor:
    """A_p(other) - A_p(k), where step = other - k is known to its last digit."""
    far = one_minus_bessel_ratio(k, p, validate_args=False)
    far = far - one_minus_bessel_ratio(other, p, validate_args=False)
    length = _length(k, other, step, p)
    near = torch.zeros_like(length)
    for slope, _ in _slopes(k, other, step, length, p):
        near = near + slope
    return torch.where(length <= _LONGEST[k.dtype], near.copysign(step), far)


def _length(k: Tensor, other: Tensor, step: Tensor, p: int) -> Tensor:
    """|tau(other) - tau(k)|."""
    whole = _nonzero(k + other)
    sinh = step.abs() / (other / whole * _root(k, p) + k / whole * _root(other, p)).clamp(min=1)
    return sinh.asinh()


def _slopes(
    k: Tensor, other: Tensor, step: Tensor, length: Tensor, p: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """At points t between k and other A_p'(t) with its weight, whose sum is an integral over t,
    and |other - t|. Everything is measured from the smaller end, so that nothing cancels."""
    up = step >= 0
    small = torch.where(up, k, other)
    root = _root(small, p)
    length = length.clamp(max=_LONGEST[k.dtype])
    for u, weight in _RULES[k.dtype]:
        tau = u * length
        rest = torch.where(up, (1 - u) * length, tau)
        middle = torch.where(up, length - rest / 2, tau / 2)
        t = small * tau.cosh() + root * tau.sinh()
        distance = 2 * (rest / 2).sinh() * (root * middle.cosh() + small * middle.sinh())
        slope = bessel_ratio_derivative(t, p, validate_args=False)
        yield weight * length * slope * (root * tau.cosh() + small * tau.sinh()), distance


def _root(k: Tensor, p: int) -> Tensor:
    return (k.square() + (p / 2 + 1) ** 2).sqrt()


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


# Up to where the difference has little cancellation, and points enough to get there.
_LONGEST = {torch.float64: 1.4, torch.float32: 2.3}
_RULES = {torch.float64: _gauss_legendre(12), torch.float32: _gauss_legendre(8)}


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
