"""Directional statistics: pure functions of tensors, with nothing of learning in them."""

from dsf.vmf.distribution import VonMisesFisher
from dsf.vmf.divergence import (
    bhattacharyya,
    chi_squared,
    geometric_jensen_shannon,
    hellinger,
    jeffreys,
    kl_divergence,
    renyi,
)
from dsf.vmf.estimate import ViewDistribution, fit_views
from dsf.vmf.special import (
    bessel_ratio,
    bessel_ratio_derivative,
    inverse_bessel_ratio,
    kappa_minus_log_partition,
    log_iv,
    log_normalizer,
    log_partition,
    one_minus_bessel_ratio,
)

__all__ = [
    "ViewDistribution",
    "VonMisesFisher",
    "bessel_ratio",
    "bessel_ratio_derivative",
    "bhattacharyya",
    "chi_squared",
    "fit_views",
    "geometric_jensen_shannon",
    "hellinger",
    "inverse_bessel_ratio",
    "jeffreys",
    "kappa_minus_log_partition",
    "kl_divergence",
    "log_iv",
    "log_normalizer",
    "log_partition",
    "one_minus_bessel_ratio",
    "renyi",
]
