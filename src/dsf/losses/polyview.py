"""The poly-view losses: every view against each of its fellows, pooled."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from dsf.losses._base import BlockSize, InBatch, Similarities
from dsf.losses.cosine import LossAverage
from dsf.losses.streaming import streaming_logsumexp
from dsf.precision import matmul

Pooling = Literal["arithmetic", "geometric"]


class PolyView(LossAverage):
    """Multi-view InfoNCE of Shidani et al., "Poly-View Contrastive Learning" (ICLR 2024).

    Of M views of each of B images, with s the cosine over the temperature, view a of image i is to
    find view b among the views of all other images:

        l(i, a, b) = exp s(ia, ib) / (exp s(ia, ib) + sum over j != i and all c of exp s(ia, jc))

    and its fellows b != a are pooled by one of two means over them:

        arithmetic: -log mean_b l(i, a, b)        geometric: -mean_b log l(i, a, b)

    The loss is the mean over i and a. The arithmetic one is never the larger; with M = 2 both are
    SimCLR's loss. Unlike in :class:`LossAverage` all views of other images are negatives at once.

    The paper's loss is that without a memory bank and with ``in_batch="both"``, where the M views
    are those of both sides. Otherwise, which is an extension, a runs over the views of ``out0`` and
    b over those of ``out1``, and the negatives are all views of the other keys, of the batch
    (``"cross"``) or of the bank. ``contrast="dcl"`` leaves exp s(ia, ib) out of the denominator.

    Args:
        pooling: ``"arithmetic"`` or ``"geometric"``.
        views: how many ``out1`` has, needed with a memory bank only.
        temperature, memory_bank_size, gather_distributed, contrast, in_batch, block_size: see
            :class:`ContrastiveLoss`.
    """

    def __init__(
        self,
        pooling: Pooling = "geometric",
        temperature: float | Tensor = 0.1,
        memory_bank_size: int | Sequence[int] = 0,
        gather_distributed: bool = False,
        contrast: str = "infonce",
        in_batch: InBatch = "both",
        views: int = 1,
        block_size: BlockSize = "auto",
    ) -> None:
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {get_args(Pooling)}; got {pooling!r}")
        super().__init__(
            temperature, memory_bank_size, gather_distributed, contrast, in_batch, views, block_size
        )
        self.pooling = pooling

    def _pairs(self, query: tuple[Tensor], key: tuple[Tensor]) -> int:
        if self.queue is not None or self.in_batch == "cross":
            return super()._pairs(query, key)
        return (query[0].shape[1] + key[0].shape[1]) ** 2

    def _dense(self, query: tuple[Tensor], key: tuple[Tensor]) -> tuple[Tensor, Similarities]:
        problem = self._problem(query, key)
        return self._pooled(problem, self._negatives(problem))

    def _streaming(self, query: tuple[Tensor], key: tuple[Tensor]) -> tuple[Tensor, Similarities]:
        problem = self._problem(query, key)
        return self._pooled(problem, self._negatives_by_block(problem))

    def _problem(self, query: tuple[Tensor], key: tuple[Tensor]) -> "_Problem":
        if self.queue is not None:
            (bank,) = self._bank(self.queue, query, key)
            return _Problem(*query, bank, _cosines(*query, *key), None)
        own = self._own_columns(query)
        if self.in_batch == "cross":
            (every,) = self._gathered(key)
            return _Problem(*query, every, _cosines(*query, *key), own)
        views = torch.cat([*query, *key], dim=1)
        (every,) = self._gathered((views,))
        cosines = _cosines(views, views)
        count = views.shape[1]
        steps = torch.arange(count, device=views.device)
        fellows = (steps.unsqueeze(-1) + steps[1:]) % count
        return _Problem(views, every, cosines.gather(-1, fellows.expand(len(views), -1, -1)), own)

    def _pooled(self, problem: "_Problem", negatives: Tensor) -> tuple[Tensor, Similarities]:
        # The negatives are the same for all fellows of a view.
        losses = negatives.unsqueeze(-1) - problem.positive / self.temperature
        if self.contrast == "infonce":
            losses = torch.logaddexp(losses, torch.zeros_like(losses))
        if self.pooling == "arithmetic":
            losses = math.log(losses.shape[-1]) - torch.logsumexp(-losses, dim=-1)
        return losses.mean(), problem.similarities

    def _negatives(self, problem: "_Problem") -> Tensor:
        """The log of the sum over the negatives of each view, (B, a)."""
        rows, columns, _, own = problem
        logits = matmul(rows.flatten(0, 1) / self.temperature, columns.flatten(0, 1).mT)
        logits = logits.view(*rows.shape[:2], *columns.shape[:2])
        if own is not None:
            place = own.view(-1, 1, 1, 1).expand(-1, rows.shape[1], 1, columns.shape[1])
            # Finite, since the gradient of a row without any negative would not be.
            logits = logits.scatter(2, place, torch.finfo(logits.dtype).min)
        return logits.flatten(2).logsumexp(dim=-1)

    def _negatives_by_block(self, problem: "_Problem") -> Tensor:
        rows, columns, _, own = problem
        skip = None
        if own is not None:
            count = columns.shape[1]
            skip = own.unsqueeze(-1) * count + torch.arange(count, device=own.device)
            skip = skip.unsqueeze(1).expand(-1, rows.shape[1], -1).flatten(0, 1)
        flat = rows.flatten(0, 1) / self.temperature
        block = None if self.block_size == "auto" else self.block_size
        total = streaming_logsumexp(flat, columns.flatten(0, 1), None, skip, block)
        return total.view(rows.shape[:2])


class _Problem(NamedTuple):
    """Who is contrasted with whom: all unit vectors.

    Attributes:
        rows: (B, a, D), the views that look for their fellows.
        columns: (C, c, D), among these.
        positive: (B, a, b), their cosines with their fellows.
        own: (B,), where each image is among the columns, to be left out; none if it is not there.
    """

    rows: Tensor
    columns: Tensor
    positive: Tensor
    own: Tensor | None

    def similarities(self) -> tuple[Tensor, Tensor]:
        """The mean cosine of each view with its fellows, and with the others, (B, a) each."""
        total, count = self.columns.sum(dim=(0, 1)), len(self.columns)
        if self.own is not None:
            total, count = total - self.columns[self.own].sum(dim=1, keepdim=True), count - 1
        negative = (self.rows * total).sum(dim=-1) / (count * self.columns.shape[1])
        return self.positive.mean(dim=-1), negative


def _cosines(query: Tensor, key: Tensor) -> Tensor:
    """Between the views of each image, (B, a, b)."""
    return matmul(query, key.mT)
