"""Closed-form divergences between von Mises-Fisher distributions.

Every function has two forms under one name:

- *Elementwise*, ``f(kappa_i, kappa_j, cos, p)`` with cos = mu_i.mu_j, all broadcast together, or
  ``f(i, j)`` with two :class:`~dsf.vmf.ViewDistribution` of matching shape. The value is
  accurate relative to itself, however close the two distributions are: never negative, and
  exactly 0 at equality. Near equality pass ``one_minus_cos`` = |mu_i - mu_j|^2 / 2 in place of
  ``cos``, which cannot hold it (two ViewDistributions do so by themselves). The error of
  derivatives by kappa is absolute: a few roundings of A, over |1 - alpha| for Renyi's.
- *Pairwise*, ``f(i, j, pairwise=True)`` with ViewDistributions of N and M entries: the (N, M)
  matrix, from one matrix product. Its error is absolute, a few roundings of the terms that cancel
  (for KL at most 8 eps (A_i k_i + A_i k_j + Phi_i + Phi_j)), which is what training needs.

With theta = kappa mu, the log-partition function Phi is convex in theta and every divergence here
is a combination of its Bregman divergences

    KL(i || j) = Phi(k_j) - Phi(k_i) - A(k_i)(k_j - k_i) + A(k_i) k_j (1 - cos).

The stable values use that the geometric mixtures theta_m = alpha theta_i + (1 - alpha) theta_j
turn Renyi's family into sums of KL divergences to and from m, all of them positive.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from dsf.precision import matmul, without_autocast
from dsf.vmf._bregman import kl, mixture, ratio_difference
from dsf.vmf._checks import check_dimension, check_range, is_number, together
from dsf.vmf.estimate import ViewDistribution
from dsf.vmf.special import bessel_ratio, log_partition

__all__ = [
    "bhattacharyya",
    "chi_squared",
    "geometric_jensen_shannon",
    "hellinger",
    "jeffreys",
    "kl_divergence",
    "renyi",
]

Side = Tensor | float | ViewDistribution


class Options(TypedDict, total=False):
    """What every divergence takes besides its positional arguments."""

    one_minus_cos: Tensor | float | None
    pairwise: bool
    validate_args: bool | None


def kl_divergence(
    kappa_i: Side,
    kappa_j: Side,
    cos: Tensor | float | None = None,
    p: int | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """Kullback-Leibler divergence KL(vMF_i || vMF_j).

    Phi(k_j) - Phi(k_i) + A(k_i)(k_i - k_j cos). Relative error below 2e-13 in float64 and 2e-5 in
    float32. The pairwise form is a_i + b_j - x_i.y_j with x = A mu, y = kappa mu,
    a = A kappa - Phi, b = Phi.

    Args:
        kappa_i: concentrations of any shape, or a :class:`~dsf.vmf.ViewDistribution`, which knows
            ``cos`` and ``p`` too.
        kappa_j: the same of j.
        cos: mu_i.mu_j, broadcast with the concentrations.
        p: the dimension.
        options: ``one_minus_cos`` = |mu_i - mu_j|^2 / 2 in place of ``cos``, which cannot hold it
            near equality; ``pairwise=True`` for the (N, M) matrix of ViewDistributions of N and M
            entries; ``validate_args``, whether values are checked, by default on the CPU only.

    Example:
        >>> from dsf.vmf import fit_views
        >>> kl_divergence(torch.tensor([100.0, 400.0]), 100.0, cos=0.9, p=128)
        tensor([ 5.4833, 38.2663])
        >>> i, j = fit_views(torch.randn(3, 8, 128)), fit_views(torch.randn(5, 8, 128))
        >>> kl_divergence(i, i), kl_divergence(i, j, pairwise=True).shape
        (tensor([0., 0., 0.]), torch.Size([3, 5]))
    """
    if options.get("pairwise"):
        one_minus_cos = options.get("one_minus_cos")
        return _pairwise_kl(*_view_distributions(kappa_i, kappa_j, cos, p, one_minus_cos))
    pair = _pair(kappa_i, kappa_j, cos, p, **options)
    return _evaluate(pair, _kl_direct, _kl_stable)


def jeffreys(
    kappa_i: Side,
    kappa_j: Side,
    cos: Tensor | float | None = None,
    p: int | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """Jeffreys divergence KL(i || j) + KL(j || i), without any normalising constant.

    (A_i - A_j)(k_i - k_j) + (A_i k_j + A_j k_i)(1 - cos). Arguments: see :func:`kl_divergence`.
    """
    pair = _pair(kappa_i, kappa_j, cos, p, **options)
    return _evaluate(pair, _jeffreys_direct, _jeffreys_stable)


def renyi(
    kappa_i: Side,
    kappa_j: Side,
    cos: Tensor | float | None = None,
    p: int | None = None,
    alpha: float = 0.5,
    **options: Unpack[Options],
) -> Tensor:
    """Renyi divergence of order ``alpha`` > 0 of i from j; KL at alpha = 1.

    [Phi(|alpha theta_i + (1 - alpha) theta_j|) - alpha Phi_i - (1 - alpha) Phi_j] / (alpha - 1),
    finite for every order, since the sphere is compact. Other arguments: see
    :func:`kl_divergence`.
    """
    if not is_number(alpha) or not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be a finite Python number > 0; got {alpha!r}")
    if alpha == 1:
        return kl_divergence(kappa_i, kappa_j, cos, p, **options)
    pair = _pair(kappa_i, kappa_j, cos, p, **options)
    return _evaluate(
        pair, lambda pair: _renyi_direct(pair, alpha), lambda pair: _renyi_stable(pair, alpha)
    )


def bhattacharyya(
    kappa_i: Side,
    kappa_j: Side,
    cos: Tensor | float | None = None,
    p: int | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """Bhattacharyya distance -log of the integral of sqrt(f_i f_j); half of Renyi's order 1/2.

    Arguments: see :func:`kl_divergence`.
    """
    return 0.5 * renyi(kappa_i, kappa_j, cos, p, 0.5, **options)


def hellinger(
    kappa_i: Side,
    kappa_j: Side,
    cos: Tensor | float | None = None,
    p: int | None = None,
    *,
    squared: bool = True,
    **options: Unpack[Options],
) -> Tensor:
    """Squared Hellinger distance 1 - exp(-D_B) in [0, 1], D_B the Bhattacharyya distance.

    ``squared=False`` gives the distance itself, a metric, whose gradient is infinite at 0.
    Other arguments: see :func:`kl_divergence`.
    """
    distance = bhattacharyya(kappa_i, kappa_j, cos, p, **options)
    square = -torch.expm1(-distance)
    return square if squared else square.sqrt()


def chi_squared(
    kappa_i: Side,
    kappa_j: Side,
    cos: Tensor | float | None = None,
    p: int | None = None,
    *,
    log: bool = False,
    **options: Unpack[Options],
) -> Tensor:
    """Pearson's chi^2(i || j), the integral of f_i^2 / f_j, minus 1.

    It overflows soon: ``log=True`` gives log(1 + chi^2), which is Renyi's divergence of order 2.
    Other arguments: see :func:`kl_divergence`.
    """
    logarithm = renyi(kappa_i, kappa_j, cos, p, 2.0, **options)
    return logarithm if log else torch.expm1(logarithm)


def geometric_jensen_shannon(
    kappa_i: Side,
    kappa_j: Side,
    cos: Tensor | float | None = None,
    p: int | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """Geometric Jensen-Shannon divergence: the mean KL to the normalised geometric mean.

    [KL(i || m) + KL(j || m)] / 2 with theta_m = (theta_i + theta_j) / 2, which is a quarter of the
    Jeffreys divergence minus the Bhattacharyya distance. Arguments: see :func:`kl_divergence`.
    """
    pair = _pair(kappa_i, kappa_j, cos, p, **options)
    return _evaluate(pair, _geometric_direct, _geometric_stable)


# --- Arguments ---


class _Pair(NamedTuple):
    k_i: Tensor
    k_j: Tensor
    gap: Tensor  # 1 - cos
    p: int
    pairwise: bool = False


def _pair(
    i: Side,
    j: Side,
    cos: Tensor | float | None,
    p: int | None,
    *,
    one_minus_cos: Tensor | float | None = None,
    pairwise: bool = False,
    validate_args: bool | None = None,
) -> _Pair:
    if pairwise or isinstance(i, ViewDistribution) or isinstance(j, ViewDistribution):
        i, j = _view_distributions(i, j, cos, p, one_minus_cos)
        p = i.p
        if pairwise:
            with without_autocast(i.mu):
                gap = 1 - matmul(i.mu, j.mu.mT)
            return _Pair(i.kappa.unsqueeze(-1), j.kappa.unsqueeze(-2), gap, p, pairwise=True)
        one_minus_cos = 0.5 * (i.mu - j.mu).square().sum(dim=-1)
        i, j = i.kappa, j.kappa
    else:
        if p is None:
            raise ValueError("p must be given with kappa_i and kappa_j; got None")
        if (cos is None) == (one_minus_cos is None):
            raise ValueError(
                f"give exactly one of cos and one_minus_cos; got {cos=} and {one_minus_cos=}"
            )
    p = check_dimension(p)
    if cos is None:
        k_i, k_j, gap = together(kappa_i=i, kappa_j=j, one_minus_cos=one_minus_cos)
        check_range("one_minus_cos", gap, 0, 2, validate_args, _SLACK)
    else:
        k_i, k_j, cos = together(kappa_i=i, kappa_j=j, cos=cos)
        check_range("cos", cos, -1, 1, validate_args, _SLACK)
        gap = 1 - cos
    largest = torch.finfo(k_i.dtype).max ** 0.5 / 4  # the squares of sums must be finite
    check_range("kappa_i", k_i, 0, largest, validate_args)
    check_range("kappa_j", k_j, 0, largest, validate_args)
    return _Pair(k_i, k_j, gap, p)


# Cosines of vectors normalised in half precision miss 1 by this much.
_SLACK = 1e-2


def _view_distributions(
    i: Side,
    j: Side,
    cos: Tensor | float | None,
    p: int | None,
    one_minus_cos: Tensor | float | None,
) -> tuple[ViewDistribution, ViewDistribution]:
    if not isinstance(i, ViewDistribution) or not isinstance(j, ViewDistribution):
        names = f"{type(i).__name__} and {type(j).__name__}"
        raise ValueError(
            f"expected two ViewDistributions (pairwise=True takes no less); got {names}"
        )
    for name, value in {"cos": cos, "p": p, "one_minus_cos": one_minus_cos}.items():
        if value is not None:
            raise ValueError(f"{name} follows from two ViewDistributions; got {name}={value!r}")
    if i.p != j.p:
        raise ValueError(f"the distributions must share one dimension; got p = {i.p} and {j.p}")
    return i, j


# --- Evaluation ---


def _evaluate(
    pair: _Pair, direct: Callable[[_Pair], Tensor], stable: Callable[[_Pair], Tensor]
) -> Tensor:
    """The stable value with the derivatives of the direct expression.

    Differentiating the stable value would go through quadrature and branches. The derivatives of
    the direct formula by kappa are differences of A_p, and near equality keep its absolute error.
    """
    if pair.pairwise:
        return direct(pair)
    k_i, k_j, gap = (tensor.detach() for tensor in pair[:3])
    value = stable(_Pair(k_i, k_j, gap.clamp(0, 2), pair.p))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in pair[:3]):
        expression = direct(pair)
        value = value + (expression - expression.detach())
    return value


def _phi(kappa: Tensor, p: int) -> Tensor:
    return log_partition(kappa, p, validate_args=False)


def _a(kappa: Tensor, p: int) -> Tensor:
    return bessel_ratio(kappa, p, validate_args=False)


def _pairwise_kl(i: ViewDistribution, j: ViewDistribution) -> Tensor:
    with without_autocast(i.mu):
        ratio = _a(i.kappa, i.p)
        row = ratio * i.kappa - _phi(i.kappa, i.p)
        column = _phi(j.kappa, j.p)
        product = matmul(ratio.unsqueeze(-1) * i.mu, (j.kappa.unsqueeze(-1) * j.mu).mT)
        return row.unsqueeze(-1) + column.unsqueeze(-2) - product


def _kl_direct(pair: _Pair) -> Tensor:
    k_i, k_j, gap, p, _ = pair
    return _phi(k_j, p) - _phi(k_i, p) + _a(k_i, p) * (k_i - k_j + k_j * gap)


def _kl_stable(pair: _Pair) -> Tensor:
    k_i, k_j, gap, p, _ = pair
    return kl(k_i, k_j, k_j - k_i, gap, p)


def _jeffreys_direct(pair: _Pair) -> Tensor:
    k_i, k_j, gap, p, _ = pair
    a_i, a_j = _a(k_i, p), _a(k_j, p)
    return (a_i - a_j) * (k_i - k_j) + (a_i * k_j + a_j * k_i) * gap


def _jeffreys_stable(pair: _Pair) -> Tensor:
    k_i, k_j, gap, p, _ = pair
    step = k_j - k_i
    radial = step * ratio_difference(k_i, k_j, step, p)
    return radial + (_a(k_i, p) * k_j + _a(k_j, p) * k_i) * gap


def _renyi_direct(pair: _Pair, alpha: float) -> Tensor:
    k_i, k_j, gap, p, _ = pair
    beta = 1 - alpha
    square = (alpha * k_i + beta * k_j).square() - 2 * alpha * beta * k_i * k_j * gap
    positive = square > 0  # the square root has no derivative at 0, and Phi is flat there
    m = torch.where(positive, torch.where(positive, square, 1).sqrt(), 0)
    return (_phi(m, p) - alpha * _phi(k_i, p) - beta * _phi(k_j, p)) / -beta


def _renyi_stable(pair: _Pair, alpha: float) -> Tensor:
    k_i, k_j, gap, p, _ = pair
    m, from_i, gap_i = mixture(k_i, k_j, gap, alpha)
    if alpha > 1:
        return kl(k_i, m, from_i, gap_i, p) / (alpha - 1) + kl(k_i, k_j, k_j - k_i, gap, p)
    _, from_j, gap_j = mixture(k_j, k_i, gap, 1 - alpha)
    to_i = kl(m, k_i, -from_i, gap_i, p)
    to_j = kl(m, k_j, -from_j, gap_j, p)
    return alpha / (1 - alpha) * to_i + to_j


def _geometric_direct(pair: _Pair) -> Tensor:
    return 0.25 * _jeffreys_direct(pair) - 0.5 * _renyi_direct(pair, 0.5)


def _geometric_stable(pair: _Pair) -> Tensor:
    k_i, k_j, gap, p, _ = pair
    m, from_i, gap_i = mixture(k_i, k_j, gap, 0.5)
    _, from_j, gap_j = mixture(k_j, k_i, gap, 0.5)
    return 0.5 * (kl(k_i, m, from_i, gap_i, p) + kl(k_j, m, from_j, gap_j, p))
