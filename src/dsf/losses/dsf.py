"""The divergence-based similarity function and the loss over it."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from dsf import distributed
from dsf.losses._base import (
    BlockSize,
    ContrastiveLoss,
    Diagnostics,
    Factors,
    Features,
    InBatch,
    as_views,
    is_count,
)
from dsf.losses.queue import Queue
from dsf.vmf import (
    ViewDistribution,
    bessel_ratio,
    bhattacharyya,
    chi_squared,
    fit_views,
    geometric_jensen_shannon,
    jeffreys,
    kl_divergence,
    log_iv,
    log_partition,
    renyi,
)
from dsf.vmf._checks import is_number
from dsf.vmf.estimate import Estimator

Mode = Literal["paper", "exact", "literal"]
Divergence = Literal[
    "kl",
    "jeffreys",
    "renyi",
    "bhattacharyya",
    "geometric-js",
    "chi-squared",
    "hellinger",
]
QueueKappa = Literal["stored", "batch-mean"]
# Bounded in [0, 1], where the others grow with kappa: it needs a temperature to be of their size.
_HELLINGER_TEMPERATURE = 0.1


class DSFSimilarity:
    """Minus a divergence between the von Mises-Fisher distributions of two sets of views.

    Args:
        mode: which reading of the paper, for KL. With k = kappa / p and R the shrunken resultant,
            ``"paper"``: what the authors ran, Phi(k_j) - Phi(k_i) + R_i (k_i - k_j cos);
            ``"exact"``: KL(vMF_i || vMF_j) / p, a true divergence;
            ``"literal"``: the text word for word, KL with k in place of kappa.
        shrink: lambda, which bounds kappa; below 1 unless there are several views.
        estimator: of kappa, ``"banerjee"`` or ``"mle"``.
        divergence: others than ``"kl"`` go with ``mode="exact"``, each divided by p; chi-squared
            as log(1 + chi^2) / p, Hellinger as 1 - exp(-D_B / p) over a temperature of 0.1.
        alpha: the order of ``"renyi"``.
        detach_resultant: no gradient through R and kappa, only through the mean direction.

    Example:
        >>> similarity = DSFSimilarity(mode="exact")
        >>> queries = similarity.fit(torch.randn(16, 4, 128))  # (B, m, D)
        >>> keys = similarity.fit(torch.randn(32, 4, 128))
        >>> queries.kappa.shape, similarity(queries, keys).shape
        (torch.Size([16]), torch.Size([16, 32]))
    """

    def __init__(
        self,
        mode: Mode = "paper",
        shrink: float = 0.95,
        estimator: Estimator = "banerjee",
        divergence: Divergence = "kl",
        alpha: float = 0.5,
        detach_resultant: bool = False,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {get_args(Mode)}; got {mode!r}")
        if divergence not in get_args(Divergence):
            raise ValueError(
                f"divergence must be one of {get_args(Divergence)}; got {divergence!r}"
            )
        if divergence != "kl" and mode != "exact":
            raise ValueError(f"divergence {divergence!r} needs mode='exact'; got mode={mode!r}")
        if not is_number(alpha) or not 0 < alpha < math.inf:
            raise ValueError(f"alpha must be a finite number > 0; got {alpha!r}")
        if not 0 < shrink <= 1:
            raise ValueError(f"shrink must be in (0, 1]; got {shrink!r}")
        if estimator not in get_args(Estimator):
            raise ValueError(f"estimator must be one of {get_args(Estimator)}; got {estimator!r}")
        self.mode = mode
        self.shrink = shrink
        self.estimator: Estimator = estimator
        self.divergence = divergence
        divergences: dict[Divergence, Callable[..., Tensor]] = {
            "jeffreys": jeffreys,
            "renyi": partial(renyi, alpha=alpha),
            "bhattacharyya": bhattacharyya,
            "hellinger": bhattacharyya,
            "chi-squared": partial(chi_squared, log=True),
            "geometric-js": geometric_jensen_shannon,
            "kl": kl_divergence,
        }
        self._divergence = divergences[divergence]
        self.detach_resultant = detach_resultant

    def fit(self, views: Features) -> ViewDistribution:
        """The distributions of (B, m, D) features."""
        views = as_views("views", views)
        if views.shape[1] == 1 and self.shrink == 1:
            raise ValueError(
                "one view (m = 1) with shrink = 1 has an infinite kappa; got views of shape "
                f"{tuple(views.shape)}: take more views or shrink < 1"
            )
        result = fit_views(views, self.shrink, self.estimator)
        if self.detach_resultant:
            mu, resultant, kappa = result
            return ViewDistribution(mu, resultant.detach(), kappa.detach())
        return result

    def __call__(self, query: ViewDistribution, key: ViewDistribution) -> Tensor:
        """The (N, M) similarities, row constants included."""
        return self.logits(query, key) + self.row_constant(query).unsqueeze(-1)

    def logits(self, query: ViewDistribution, key: ViewDistribution) -> Tensor:
        """The (N, M) similarities up to a constant a row; for KL one matrix product."""
        if self.divergence != "kl":
            return self._other(query, key, pairwise=True)
        return self.factors(query, key).product()

    def paired(self, query: ViewDistribution, key: ViewDistribution) -> Tensor:
        """The (N,) similarities of corresponding entries, up to the same constant."""
        if self.divergence != "kl":
            return self._other(query, key, pairwise=False)
        return self.factors(query, key).paired()

    def factors(self, query: ViewDistribution, key: ViewDistribution) -> Factors:
        """KL's factors. The query's own terms are constants of its row and left out."""
        ratio, _ = self._query_terms(query)
        k = key.kappa / key.p
        phi = self._phi(key)
        return Factors(ratio.unsqueeze(-1) * query.mu, k.unsqueeze(-1) * key.mu, phi)

    def row_constant(self, query: ViewDistribution) -> Tensor:
        """What ``logits`` and ``paired`` leave out."""
        if self.divergence != "kl":
            return torch.zeros_like(query.kappa)
        ratio, k = self._query_terms(query)
        return self._phi(query) - ratio * k

    def terms(
        self, query: ViewDistribution, key: ViewDistribution
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The paper's three terms of the divergence between corresponding entries.

        nu log(k_i / k_j), log I_nu(k_j) - log I_nu(k_i) and A_i (k_i - k_j cos), infinite or NaN
        where a concentration is 0: for figures, not for training.
        """
        ratio, k_i = self._query_terms(query)
        k_j, nu = key.kappa / key.p, query.p / 2 - 1
        third = ratio * (k_i - k_j * (query.mu * key.mu).sum(dim=-1))
        scale = 1
        if self.mode == "exact":
            k_i, k_j, scale = query.kappa, key.kappa, query.p
        first = nu * torch.log(k_i / k_j)
        second = log_iv(nu, k_j, validate_args=False) - log_iv(nu, k_i, validate_args=False)
        return first / scale, second / scale, third

    def _query_terms(self, query: ViewDistribution) -> tuple[Tensor, Tensor]:
        k = query.kappa / query.p
        if self.mode == "paper":
            return query.resultant, k
        concentration = query.kappa if self.mode == "exact" else k
        return bessel_ratio(concentration, query.p, validate_args=False), k

    def _phi(self, side: ViewDistribution) -> Tensor:
        if self.mode == "exact":
            return log_partition(side.kappa, side.p, validate_args=False) / side.p
        return log_partition(side.kappa / side.p, side.p, validate_args=False)

    def _other(self, query: ViewDistribution, key: ViewDistribution, pairwise: bool) -> Tensor:
        value = self._divergence(query, key, pairwise=pairwise, validate_args=False) / query.p
        if self.divergence == "hellinger":
            return torch.expm1(-value) / _HELLINGER_TEMPERATURE
        return -value


class DSFLoss(ContrastiveLoss[ViewDistribution]):
    """Contrast between distributions of views, by :class:`DSFSimilarity`.

    The sides may have unequal numbers of views; the resultant of fewer is the larger on average,
    E R^2 = rho^2 + (1 - rho^2) / m, and so is their kappa.

    Args:
        temperature: 1, as there is nothing to tune; the paper's table varies it.
        memory_bank_size: 0, or (K, D) for a queue of K keys: mean directions and concentrations.
        gather_distributed: negatives from all processes.
        mode, shrink, estimator, divergence, alpha, detach_resultant: see :class:`DSFSimilarity`.
        queue_kappa: the concentration of queued keys, ``"stored"``, each its own, or
            ``"batch-mean"``, for all the mean of the current queries and keys (the authors).
            Slots that no key has filled yet take the mean in either case.
        in_batch, contrast, block_size: see :class:`ContrastiveLoss`.

    Example:
        >>> queries = torch.randn(16, 4, 128, requires_grad=True)  # (B, m, D)
        >>> loss, diagnostics = DSFLoss().with_diagnostics(queries, torch.randn(16, 4, 128))
        >>> loss.backward()
        >>> loss.shape, "margin" in diagnostics
        (torch.Size([]), True)
    """

    def __init__(
        self,
        temperature: float | Tensor = 1.0,
        memory_bank_size: int | Sequence[int] = 0,
        gather_distributed: bool = False,
        mode: Mode = "paper",
        shrink: float = 0.95,
        estimator: Estimator = "banerjee",
        queue_kappa: QueueKappa = "stored",
        in_batch: InBatch = "both",
        contrast: str = "infonce",
        divergence: Divergence = "kl",
        alpha: float = 0.5,
        detach_resultant: bool = False,
        block_size: BlockSize = "auto",
    ) -> None:
        if is_count(block_size) and divergence != "kl":
            raise ValueError(
                "block_size needs a similarity that is a matrix product, that of divergence='kl'; "
                f"got divergence={divergence!r}"
            )
        if queue_kappa not in get_args(QueueKappa):
            choices = get_args(QueueKappa)
            raise ValueError(f"queue_kappa must be one of {choices}; got {queue_kappa!r}")
        super().__init__(
            temperature, memory_bank_size, gather_distributed, contrast, in_batch, block_size
        )
        self.similarity = DSFSimilarity(
            mode, shrink, estimator, divergence, alpha, detach_resultant
        )
        self.queue_kappa = queue_kappa

    def represent(self, views: Tensor) -> ViewDistribution:
        """The distributions of the views."""
        return self.similarity.fit(views)

    def factors(self, query: ViewDistribution, key: ViewDistribution) -> Factors:
        """KL's similarities without the query's own terms, which cancel in the softmax."""
        return self.similarity.factors(query, key)

    def is_product(self) -> bool:
        """Of KL alone."""
        return self.similarity.divergence == "kl"

    def logits(self, query: ViewDistribution, key: ViewDistribution) -> Tensor:
        """Those of any divergence, as a matrix."""
        return self.similarity.logits(query, key)

    def paired(self, query: ViewDistribution, key: ViewDistribution) -> Tensor:
        """The same of corresponding entries."""
        return self.similarity.paired(query, key)

    def row_constant(self, query: ViewDistribution) -> Tensor:
        """The query's own terms."""
        return self.similarity.row_constant(query)

    def gather(self, key: ViewDistribution) -> ViewDistribution:
        """One vector a key travels: mu, with resultant and kappa behind it."""
        scalars = torch.stack([key.resultant, key.kappa], dim=-1)
        packed = distributed.gather(torch.cat([key.mu, scalars], dim=-1))
        return ViewDistribution(packed[:, :-2], packed[:, -2], packed[:, -1])

    def make_queue(self, size: int, dimension: int) -> Queue:
        """A queue of mean directions and concentrations."""
        return Queue(size, mu=(dimension,), kappa=())

    def enqueue(self, queue: Queue, key: ViewDistribution) -> None:
        """Store mu and kappa; no mode needs a key's resultant."""
        queue.write(key.mu, key.kappa)

    def bank(
        self, queue: Queue, query: ViewDistribution, key: ViewDistribution
    ) -> ViewDistribution:
        """The queued distributions."""
        mu, kappa = queue.read(query.mu)
        mean = torch.cat([query.kappa, key.kappa]).mean().detach()
        if self.gather_distributed:
            mean = distributed.mean(mean)
        if self.queue_kappa == "batch-mean":
            kappa = mean.expand(queue.size)
        else:
            slots = torch.arange(queue.size, device=mu.device)
            kappa = torch.where(slots < queue.filled, kappa, mean)
        return ViewDistribution(mu, torch.zeros_like(kappa), kappa)

    def statistics(self, query: ViewDistribution, key: ViewDistribution) -> Diagnostics:
        """Of kappa and the resultant, and KL's three terms, of positives and of other images."""
        kappa = torch.cat([query.kappa, key.kappa])
        resultant = torch.cat([query.resultant, key.resultant])
        result = {
            "kappa_mean": kappa.mean(),
            "kappa_min": kappa.min(),
            "kappa_max": kappa.max(),
            "resultant_mean": resultant.mean(),
            "resultant_min": resultant.min(),
            "resultant_max": resultant.max(),
        }
        if self.similarity.divergence == "kl":
            first, second, third = self.similarity.terms(query, key)
            result |= {"kl_log": first.mean(), "kl_bessel": second.mean(), "kl_cos": third.mean()}
            # The means of the other two do not depend on who is paired with whom.
            other = ViewDistribution(*(part.roll(1, dims=0) for part in key))
            result["negative_kl_cos"] = self.similarity.terms(query, other)[2].mean()
        return result
