"""The von Mises-Fisher distribution as a ``torch.distributions.Distribution``."""

from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints, register_kl
from torch.nn.functional import normalize

from dsf.vmf._checks import check_dimension, values_are_checked
from dsf.vmf.divergence import kl_divergence
from dsf.vmf.estimate import fit_views
from dsf.vmf.special import (
    bessel_ratio,
    bessel_ratio_derivative,
    kappa_minus_log_partition,
    log_uniform_density,
    one_minus_bessel_ratio,
    ratio_over_kappa,
)

_HALF = (torch.float16, torch.bfloat16)


class _UnitVector(constraints.Constraint):
    """Vectors of length 1, up to what their precision can hold."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        tolerance = 1e-2 if value.dtype in _HALF else 1e-5
        length: Tensor = torch.linalg.vector_norm(value, dim=-1)
        return (length - 1).abs() <= tolerance


unit_vector = _UnitVector()


def _promoted(loc: Tensor, dtype: torch.dtype) -> Tensor:
    """Unit vectors in a higher precision, of which those of half precision fall short."""
    wide = loc.to(dtype)
    if loc.dtype == dtype or loc.dtype not in _HALF:
        return wide
    return torch.where(unit_vector.check(loc).unsqueeze(-1), normalize(wide, dim=-1), wide)


class VonMisesFisher(Distribution):
    """Unit vectors x in R^p with density C_p(kappa) exp(kappa mu.x).

    Args:
        loc: mu, (..., p) unit vectors, p >= 2.
        concentration: kappa >= 0, broadcast against the batch shape of ``loc``; 0 is the uniform
            distribution on the sphere.
        validate_args: whether values are checked, here and in ``log_prob``. By default they are
            on the CPU, and not where looking would synchronise with the device.

    >>> vmf = VonMisesFisher(torch.tensor([0.0, 0.0, 1.0]), torch.tensor(10.0))
    >>> vmf.mean
    tensor([0.0000, 0.0000, 0.9000])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": unit_vector,
        "concentration": constraints.nonnegative,
    }
    support = unit_vector
    has_rsample = False

    loc: Tensor
    concentration: Tensor

    def __init__(
        self, loc: Tensor, concentration: Tensor | float, validate_args: bool | None = None
    ) -> None:
        if not isinstance(loc, Tensor) or not loc.is_floating_point() or loc.dim() < 1:
            got = f"shape {tuple(loc.shape)}" if isinstance(loc, Tensor) else type(loc).__name__
            raise ValueError(f"loc must be a floating-point tensor of shape (..., p); got {got}")
        p = check_dimension(loc.shape[-1])
        if isinstance(concentration, Tensor):
            dtype = torch.promote_types(loc.dtype, concentration.dtype)
            loc, concentration = _promoted(loc, dtype), concentration.to(dtype)
        else:
            concentration = torch.as_tensor(concentration, dtype=loc.dtype, device=loc.device)
        try:
            batch_shape = torch.broadcast_shapes(loc.shape[:-1], concentration.shape)
        except RuntimeError as error:
            raise ValueError(
                f"concentration of shape {tuple(concentration.shape)} does not broadcast with the "
                f"batch shape {tuple(loc.shape[:-1])} of loc"
            ) from error
        self.loc = loc.expand(*batch_shape, p)
        self.concentration = concentration.expand(batch_shape)
        # torch.compile turns the default of torch.distributions off for the whole process.
        validate_args = values_are_checked(loc, validate_args)
        super().__init__(batch_shape, Size((p,)), validate_args=validate_args)

    @classmethod
    def fit(cls, samples: Tensor, validate_args: bool | None = None) -> "VonMisesFisher":
        """The maximum-likelihood distribution of n samples, (..., n, p), normalised if need be.

        Where they cancel it is uniform, with the first axis as ``loc``.
        """
        loc, _, kappa = fit_views(samples, shrink=1, estimator="mle", validate_args=validate_args)
        axis = torch.eye(1, loc.shape[-1], dtype=loc.dtype, device=loc.device)[0]
        loc = torch.where((kappa == 0).unsqueeze(-1), axis, loc)
        return cls(loc, kappa, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "VonMisesFisher":
        """The same distribution with a larger batch shape, sharing memory."""
        new: VonMisesFisher = self._get_checked_instance(  # type: ignore[no-untyped-call]
            VonMisesFisher, _instance
        )
        batch_shape = Size(batch_shape)
        new.loc = self.loc.expand(batch_shape + self.event_shape)
        new.concentration = self.concentration.expand(batch_shape)
        super(VonMisesFisher, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def p(self) -> int:
        """The dimension of the sphere's space."""
        return self.event_shape[0]

    @property
    def mean(self) -> Tensor:
        """A_p(kappa) mu, the mean in R^p."""
        ratio = bessel_ratio(self.concentration, self.p, validate_args=False)
        return ratio.unsqueeze(-1) * self.loc

    @property
    def mode(self) -> Tensor:
        """mu. (All of the sphere when kappa is 0.)"""
        return self.loc

    @property
    def covariance_matrix(self) -> Tensor:
        """A / kappa (I - mu mu^T) + A' mu mu^T, the covariance in R^p."""
        along, across = self._variances()
        outer = self.loc.unsqueeze(-1) * self.loc.unsqueeze(-2)
        identity = torch.eye(self.p, dtype=outer.dtype, device=outer.device)
        return across[..., None, None] * (identity - outer) + along[..., None, None] * outer

    @property
    def variance(self) -> Tensor:
        """The variance of each coordinate: the diagonal of the covariance matrix."""
        along, across = self._variances()
        square = self.loc.square()
        return across.unsqueeze(-1) * (1 - square) + along.unsqueeze(-1) * square

    def _variances(self) -> tuple[Tensor, Tensor]:
        along = bessel_ratio_derivative(self.concentration, self.p, validate_args=False)
        return along, ratio_over_kappa(self.concentration, self.p)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density at unit vectors ``value``, (..., p).

        Written as log C_p(0) + (kappa - Phi) - kappa |value - mu|^2 / 2, which keeps its
        accuracy at large kappa, where log C_p and kappa mu.x are large and opposite.
        """
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc).square().sum(dim=-1)
        psi = kappa_minus_log_partition(self.concentration, self.p, validate_args=False)
        return log_uniform_density(self.p) + psi - 0.5 * self.concentration * distance

    def entropy(self) -> Tensor:
        """The differential entropy, -log C_p(kappa) - kappa A_p(kappa)."""
        kappa = self.concentration
        psi = kappa_minus_log_partition(kappa, self.p, validate_args=False)
        rest = kappa * one_minus_bessel_ratio(kappa, self.p, validate_args=False)
        return rest - psi - log_uniform_density(self.p)

    @torch.no_grad()
    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        """Draw samples of shape sample_shape + batch_shape + (p,).

        The cosine with mu comes from Wood's rejection sampler, the direction around mu is
        uniform, and a reflection takes the first axis to mu.
        """
        shape = self._extended_shape(Size(sample_shape))
        dtype = self.loc.dtype
        loc = self.loc.to(torch.promote_types(dtype, torch.float32)).expand(shape)
        kappa = self.concentration.to(loc.dtype).expand(shape[:-1])
        t = _sample_one_minus_cos(kappa, self.p)
        normal = torch.randn(*shape[:-1], self.p - 1, dtype=loc.dtype, device=loc.device)
        if self.p == 2:  # a normal number may be 0, which is on neither side
            around = torch.ones_like(normal).copysign(normal)
        else:
            around = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
        sine = (t * (2 - t)).sqrt()
        y = torch.cat([(1 - t).unsqueeze(-1), sine.unsqueeze(-1) * around], dim=-1)
        return _reflect_first_axis_to(loc, y).to(dtype)


@register_kl(VonMisesFisher, VonMisesFisher)  # type: ignore[untyped-decorator]
def _kl_von_mises_fisher(i: VonMisesFisher, j: VonMisesFisher) -> Tensor:
    if i.p != j.p:
        raise ValueError(f"the distributions must share one dimension; got p = {i.p} and {j.p}")
    gap = 0.5 * (i.loc - j.loc).square().sum(dim=-1)
    return kl_divergence(
        i.concentration, j.concentration, p=i.p, one_minus_cos=gap, validate_args=False
    )


def _sample_one_minus_cos(kappa: Tensor, p: int) -> Tensor:
    """Draw t = 1 - mu.x, by rejection from a transformed beta distribution (Wood, 1994).

    In terms of t nothing cancels when kappa is large and t tiny.
    """
    shape, kappa = kappa.shape, kappa.flatten()
    b = (p - 1) / (2 * kappa + (4 * kappa.square() + (p - 1) ** 2).sqrt())
    t = torch.empty_like(kappa)
    pending = torch.arange(kappa.numel(), device=kappa.device)
    while pending.numel():
        k, b_k = kappa[pending], b[pending]
        # A beta variable z = g / (g + h) from two gamma variables, so that 1 - z is exact too.
        half = torch.full_like(k, (p - 1) / 2)
        g, h = torch._standard_gamma(half), torch._standard_gamma(half)
        proposal = 2 * b_k * g / (h + b_k * g)
        # With w = 1 - proposal and w_0 = (1 - b) / (1 + b), the mode of the envelope:
        # log u <= kappa (w - w_0) + (p - 1) log[(1 - w_0 w) / (1 - w_0^2)].
        odds = (1 - b_k) / (2 * b_k)  # w_0 / (1 - w_0)
        bound = k * (2 * b_k / (1 + b_k) - proposal)
        bound = bound + (p - 1) * (torch.log1p(odds * proposal) + torch.log1p((b_k - 1) / 2))
        rejected = torch.log(torch.rand_like(k)) > bound  # a NaN is kept, and ends the loop
        t[pending] = proposal
        pending = pending[rejected]
    return t.reshape(shape)


def _reflect_first_axis_to(loc: Tensor, y: Tensor) -> Tensor:
    """The Householder reflection that takes the first axis to ``loc``, applied to ``y``."""
    # Reflecting to -sign(loc_1) loc and turning the sign back keeps the mirror's normal long.
    sign = torch.where(loc[..., :1] < 0, -1.0, 1.0)
    normal = loc.clone()
    normal[..., :1] += sign
    scale = (normal * y).sum(dim=-1, keepdim=True) / (1 + loc[..., :1].abs())
    return -sign * (y - scale * normal)
