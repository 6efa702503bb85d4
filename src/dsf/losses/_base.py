"""What all contrastive losses share: inputs, negatives, the queue, gathering, diagnostics.

A loss turns the views of each side into a *representation*, a tuple of tensors whose first
dimension counts samples, and says what two representations have to do with each other.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Generic, Literal, NamedTuple, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from dsf import distributed
from dsf.losses.contrast import CONTRASTS, OF_EXCESS
from dsf.losses.queue import Queue
from dsf.losses.streaming import streaming_logsumexp
from dsf.precision import matmul, without_autocast

Features = Tensor | Sequence[Tensor]
InBatch = Literal["both", "cross"]
BlockSize = int | Literal["auto"] | None
Diagnostics = dict[str, Tensor]
# Computes each row's similarity to its positive, and the mean of those to its negatives.
Similarities = Callable[[], tuple[Tensor, Tensor]]
R = TypeVar("R", bound=tuple[Tensor, ...])

_LARGE = 2**26  # logits, above which their matrix is not stored


class Factors(NamedTuple):
    """Similarities as x_i . y_j - b_j, where there is a b."""

    x: Tensor
    y: Tensor
    b: Tensor | None = None

    def product(self) -> Tensor:
        """The (..., N, M) matrix."""
        result = matmul(self.x, self.y.mT)
        return result if self.b is None else result - self.b

    def paired(self) -> Tensor:
        """The (..., N) similarities of corresponding entries."""
        result = (self.x * self.y).sum(dim=-1)
        return result if self.b is None else result - self.b


class ContrastiveLoss(nn.Module, ABC, Generic[R]):
    """Contrast two sets of views, with negatives from the batch or from a memory bank.

    Without a memory bank and with ``in_batch="both"``, all 2 B representations of the batch
    contrast with each other (SimCLR); with ``"cross"``, those of ``out0`` with those of ``out1``
    (MoCo v3). With a bank, the positive of ``out0`` is ``out1`` and the negatives are the bank's
    (MoCo); the keys enter it after they were contrasted, in training mode only.

    More than 2^26 logits (256 MiB), if they are a matrix product, are computed in pieces and never
    stored whole, forward or backward: on a GPU by a kernel, elsewhere for some negatives at a
    time. A number as ``block_size`` does so at any size, for so many negatives at a time without
    the kernel; None never does. A parameter as ``temperature`` is learned.
    """

    def __init__(
        self,
        temperature: float | Tensor,
        memory_bank_size: int | Sequence[int],
        gather_distributed: bool,
        contrast: str,
        in_batch: InBatch,
        block_size: BlockSize,
    ) -> None:
        super().__init__()
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be > 0 and finite; got {temperature!r}")
        if contrast not in CONTRASTS:
            raise ValueError(f"contrast must be one of {tuple(CONTRASTS)}; got {contrast!r}")
        if in_batch not in get_args(InBatch):
            raise ValueError(f"in_batch must be one of {get_args(InBatch)}; got {in_batch!r}")
        if not (block_size is None or block_size == "auto" or is_count(block_size)):
            raise ValueError(
                f"block_size must be 'auto', None or an int of at least 1; got {block_size!r}"
            )
        self.block_size = block_size
        self.temperature = temperature
        self.gather_distributed = gather_distributed
        self.contrast = contrast
        self.in_batch = in_batch
        self.queue: Queue | None = None
        if memory_bank_size != 0:
            sizes = tuple(memory_bank_size) if isinstance(memory_bank_size, Sequence) else ()
            if len(sizes) != 2 or not all(map(is_count, sizes)):
                raise ValueError(
                    "memory_bank_size must be 0 or (K, D), ints of at least 1; "
                    f"got {memory_bank_size!r}"
                )
            self.queue = self.make_queue(*sizes)

    # What a loss defines.

    @abstractmethod
    def represent(self, views: Tensor) -> R:
        """The representation of (B, m, D) features."""

    @abstractmethod
    def factors(self, query: R, key: R) -> Factors:
        """The (..., N, M) similarities as x_i . y_j - b_j, up to a constant a row."""

    def logits(self, query: R, key: R) -> Tensor:
        """The same as a matrix, before the temperature."""
        return self.factors(query, key).product()

    @abstractmethod
    def paired(self, query: R, key: R) -> Tensor:
        """The (..., N) similarities of corresponding entries, up to the same constant."""

    @abstractmethod
    def make_queue(self, size: int, dimension: int) -> Queue:
        """An empty queue for this representation."""

    def enqueue(self, queue: Queue, key: R) -> None:
        """Put keys into the queue."""
        queue.write(*key)

    def bank(self, queue: Queue, query: R, key: R) -> R:
        """The queue's content as a representation."""
        return cast(R, queue.read(query[0]))

    def gather(self, key: R) -> R:
        """The representations of all processes."""
        return cast(R, tuple(distributed.gather(tensor) for tensor in key))

    def row_constant(self, query: R) -> Tensor | None:
        """What ``logits`` leaves out of the similarity, (N,), if anything."""
        return None

    def statistics(self, query: R, key: R) -> Diagnostics:
        """Further diagnostics of this loss."""
        return {}

    def is_product(self) -> bool:
        """Whether ``factors`` says it all, so that logits need not be stored."""
        return True

    # What they share.

    def forward(self, out0: Features, out1: Features, update_queue: bool = True) -> Tensor:
        """The loss of two sides, each (B, m, D), m tensors (B, D), or (B, D) for one view.

        Their m may differ, where the loss takes several views.
        ``update_queue=False`` leaves it to the caller to enqueue the keys, by :meth:`remember`.
        """
        loss, _ = self._evaluate(out0, out1, update_queue, diagnose=False)
        return loss

    def with_diagnostics(
        self, out0: Features, out1: Features, update_queue: bool = True
    ) -> tuple[Tensor, Diagnostics]:
        """The loss and detached scalars: similarities, their margin and the loss's statistics."""
        return self._evaluate(out0, out1, update_queue, diagnose=True)

    @torch.no_grad()
    def remember(self, out1: Features) -> None:
        """Put keys into the memory bank, if there is one, in training mode."""
        if self.queue is not None and self.training:
            views = as_views("out1", out1)
            with without_autocast(views):
                self.enqueue(self.queue, self._whole_batch(self.represent(views)))

    def _evaluate(
        self, out0: Features, out1: Features, update_queue: bool, diagnose: bool
    ) -> tuple[Tensor, Diagnostics]:
        views0, views1 = as_views("out0", out0), as_views("out1", out1)
        if views0.shape[::2] != views1.shape[::2]:
            raise ValueError(
                "out0 and out1 must have the same number of samples and the same dimension; "
                f"got {tuple(views0.shape)} and {tuple(views1.shape)} as (B, m, D)"
            )
        if self.contrast == "dcl" and self.queue is None and self._samples(len(views0)) == 1:
            raise ValueError(
                "contrast='dcl' leaves the positive out of the sum, and a single sample without a "
                "memory bank has no negatives to sum over; got out0 and out1 of one sample"
            )
        dtype = torch.promote_types(views0.dtype, views1.dtype)
        views0, views1 = views0.to(dtype), views1.to(dtype)
        with without_autocast(views0):
            query, key = self.represent(views0), self.represent(views1)
            how = self._streaming if self._streams(query, key) else self._dense
            loss, similarities = how(query, key)
            diagnostics: Diagnostics = {}
            if diagnose:
                with torch.no_grad():
                    diagnostics = self._diagnose(*similarities(), query, key)
            if self.queue is not None and self.training and update_queue:
                self.enqueue(self.queue, self._whole_batch(detached(key)))
        return loss, diagnostics

    def _gathered(self, key: R) -> R:
        return self.gather(key) if self.gather_distributed else key

    def _whole_batch(self, key: R) -> R:
        """Of all processes, in the order in which one would have them."""
        if not self.gather_distributed:
            return key
        return _rebuild(key, [distributed.interleave(tensor) for tensor in self.gather(key)])

    def _samples(self, own: int) -> int:
        """How many are contrasted in the batch, with those of the other processes."""
        return own * (distributed.world_size() if self.gather_distributed else 1)

    def _offset(self, query: R) -> int:
        return distributed.rank() * query[0].shape[0] if self.gather_distributed else 0

    def _bank(self, queue: Queue, query: R, key: R) -> R:
        bank = self.bank(queue, query, key)
        if bank[0].shape[1:] != key[0].shape[1:]:
            raise ValueError(
                f"the memory bank holds keys of shape {tuple(bank[0].shape[1:])}; "
                f"got features of shape {tuple(key[0].shape[1:])}"
            )
        return bank

    def _own_columns(self, query: R) -> Tensor:
        """Where this process's samples are among all."""
        first = self._offset(query)
        return torch.arange(first, first + query[0].shape[0], device=query[0].device)

    def _streams(self, query: R, key: R) -> bool:
        if not self.is_product():
            return False
        if self.block_size != "auto":
            return self.block_size is not None
        samples = len(query[0])
        others = self._samples(samples) if self.queue is None else self.queue.size
        return samples * others * self._pairs(query, key) > _LARGE

    def _pairs(self, query: R, key: R) -> int:
        """How many logits there are of a sample and another."""
        pairs = math.prod(query[0].shape[1:-1]) * math.prod(key[0].shape[1:-1])
        return pairs if self.queue is not None or self.in_batch == "cross" else 4 * pairs

    # All logits at once.

    def _dense(self, query: R, key: R) -> tuple[Tensor, Similarities]:
        itself: Tensor | None = None
        if self.queue is not None:
            logits, positives = self._against_queue(self.queue, query, key)
        elif self.in_batch == "cross":
            logits, positives = self._against_keys(query, key)
        else:
            logits = self._against_batch(query, key)
            itself, positives = self._both_columns(query, logits.shape[-1])
            itself = itself.unsqueeze(-1).expand((*logits.shape[:-1], 1))
        scaled = logits / self.temperature
        if itself is not None:  # after the division: -inf has no derivative by the temperature
            scaled = scaled.scatter(-1, itself, -torch.inf)

        def similarities() -> tuple[Tensor, Tensor]:
            column = positives.unsqueeze(-1).expand((*logits.shape[:-1], 1))
            positive = logits.gather(-1, column).squeeze(-1)
            others = logits if itself is None else logits.scatter(-1, itself, 0)
            count = logits.shape[-1] - (1 if itself is None else 2)
            return positive, (others.sum(dim=-1) - positive) / count

        return CONTRASTS[self.contrast](scaled, positives), similarities

    def _against_queue(self, queue: Queue, query: R, key: R) -> tuple[Tensor, Tensor]:
        negative = self.logits(query, self._bank(queue, query, key))
        logits = torch.cat([self.paired(query, key).unsqueeze(-1), negative], dim=-1)
        return logits, torch.zeros(logits.shape[-2], dtype=torch.int64, device=logits.device)

    def _against_keys(self, query: R, key: R) -> tuple[Tensor, Tensor]:
        return self.logits(query, self._gathered(key)), self._own_columns(query)

    def _against_batch(self, query: R, key: R) -> Tensor:
        return self.logits(concatenate(query, key), self._every(query, key))

    def _both_columns(self, query: R, count: int) -> tuple[Tensor, Tensor]:
        """Of all 2 B representations, where each one itself is and where its positive is."""
        first = self._own_columns(query)
        second = first + count // 2
        return torch.cat([first, second]), torch.cat([second, first])

    # A block of negatives at a time; positives are never among them.

    def _streaming(self, query: R, key: R) -> tuple[Tensor, Similarities]:
        skip = None
        if self.queue is not None:
            factors = self.factors(query, self._bank(self.queue, query, key))
            positive = self.paired(query, key)
        elif self.in_batch == "cross":
            factors = self.factors(query, self._gathered(key))
            positive = self.paired(query, key)
            skip = self._own_columns(query).unsqueeze(-1)
        else:
            factors, positive = self._batch_factors(query, key)
            skip = torch.stack(self._both_columns(query, factors.y.shape[-2]), dim=-1)
        x, y, b = factors
        scaled = None if b is None else b / self.temperature
        block = None if self.block_size == "auto" else self.block_size
        total = streaming_logsumexp(x / self.temperature, y, scaled, skip, block)

        def similarities() -> tuple[Tensor, Tensor]:
            negatives = (x * y.sum(dim=-2, keepdim=True)).sum(dim=-1)
            if b is not None:
                negatives = negatives - b.sum()
            count = y.shape[-2]
            for columns in () if skip is None else skip.unbind(-1):
                one = Factors(x, y[..., columns, :], None if b is None else b[columns])
                negatives = negatives - one.paired()
                count -= 1
            return positive, negatives / count

        return OF_EXCESS[self.contrast](total - positive / self.temperature), similarities

    def _batch_factors(self, query: R, key: R) -> tuple[Factors, Tensor]:
        rows, every = concatenate(query, key), self._every(query, key)
        return self.factors(rows, every), self.paired(rows, concatenate(key, query))

    def _every(self, query: R, key: R) -> R:
        return concatenate(self._gathered(query), self._gathered(key))

    def _diagnose(self, positive: Tensor, negative: Tensor, query: R, key: R) -> Diagnostics:
        result = {"margin": (positive - negative).mean()}
        symmetric = self.queue is None and self.in_batch == "both"
        sides = (query, key) if symmetric else (query,)
        constants = [c for c in map(self.row_constant, sides) if c is not None]
        if constants:
            constant = torch.cat(constants)
            positive, negative = positive + constant, negative + constant
        result |= {"positive": positive.mean(), "negative": negative.mean()}
        return result | self.statistics(query, key)


def is_count(value: object) -> bool:
    """Whether this is an int of at least 1."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def as_views(name: str, features: Features) -> Tensor:
    """Features as (B, m, D), at least in float32."""
    if not isinstance(features, Tensor):
        shapes = {tuple(view.shape) for view in features}
        if len(shapes) != 1:
            raise ValueError(f"{name} must be a list of tensors of one shape; got {shapes}")
        features = torch.stack(list(features), dim=1)
    if features.dim() == 2:
        features = features.unsqueeze(1)
    if features.dim() != 3 or 0 in features.shape or not features.is_floating_point():
        raise ValueError(
            f"{name} must hold features of shape (B, m, D), a list of m (B, D), or (B, D); "
            f"got shape {tuple(features.shape)} of {features.dtype}"
        )
    return features if features.dtype is torch.float64 else features.float()


def unit(views: Tensor) -> Tensor:
    """Vectors of length 1."""
    return normalize(views, dim=-1)


def concatenate(first: R, second: R) -> R:
    """Two representations as one."""
    return _rebuild(first, [torch.cat(pair) for pair in zip(first, second, strict=True)])


def detached(representation: R) -> R:
    """A representation cut from the graph."""
    return _rebuild(representation, [tensor.detach() for tensor in representation])


def _rebuild(like: R, tensors: list[Tensor]) -> R:
    make = getattr(type(like), "_make", tuple)  # a named tuple stays one
    return cast(R, make(tensors))
