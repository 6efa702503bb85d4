"""The special functions in ball arithmetic, as an independent source of truth for random points."""

from typing import NamedTuple

from flint import arb, ctx


class Exact(NamedTuple):
    log_partition: arb
    bessel_ratio: arb
    one_minus_bessel_ratio: arb
    bessel_ratio_derivative: arb
    kappa_minus_log_partition: arb
    log_normalizer: arb


def exact(kappa: float, p: int) -> Exact:
    k = arb(kappa)
    for digits in (150, 600, 3000, 12000):
        ctx.dps = digits
        nu = arb(p) / 2 - 1
        low, high = k.bessel_i(nu), k.bessel_i(nu + 1)
        if min(low.rel_accuracy_bits(), high.rel_accuracy_bits()) > 300:
            break
    else:
        raise ArithmeticError(f"no convergence at kappa = {kappa}, p = {p}")
    ratio = high / low
    phi = low.log() - nu * (k / 2).log() + (nu + 1).lgamma()
    uniform = (nu + 1).lgamma() - arb(2).log() - arb(p) / 2 * arb.pi().log()
    slope = 1 - ratio * ratio - (p - 1) * ratio / k
    return Exact(phi, ratio, 1 - ratio, slope, k - phi, uniform - phi)


def exact_kl(k_i: float, k_j: float, one_minus_cos: float, p: int) -> arb:
    i, j = exact(k_i, p), exact(k_j, p)
    k_i, k_j = arb(k_i), arb(k_j)
    radial = j.log_partition - i.log_partition - i.bessel_ratio * (k_j - k_i)
    return radial + i.bessel_ratio * k_j * arb(one_minus_cos)


def relative_error(value: float, truth: arb, floor: float = 0.0) -> float:
    return float(abs(arb(value) - truth)) / max(abs(float(truth)), floor)
