"""The cosine losses: two views, and the multi-view baselines Loss_avg and Feature_avg."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsf.losses._base import BlockSize, ContrastiveLoss, Factors, InBatch, unit
from dsf.losses.queue import Queue
from dsf.precision import matmul


class FeatureAverage(ContrastiveLoss[tuple[Tensor]]):
    """Feature_avg: contrast between the means of the m unit features.

    The similarity of two means is the mean of the m x m' cosines between their views.
    ``normalize=True`` makes the means unit vectors first.
    """

    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        memory_bank_size: int | Sequence[int] = 0,
        gather_distributed: bool = False,
        contrast: str = "infonce",
        in_batch: InBatch = "both",
        normalize: bool = False,
        block_size: BlockSize = "auto",
    ) -> None:
        super().__init__(
            temperature, memory_bank_size, gather_distributed, contrast, in_batch, block_size
        )
        self.normalize = normalize

    def represent(self, views: Tensor) -> tuple[Tensor]:
        """The mean of the unit features."""
        mean = unit(views).mean(dim=1)
        return (unit(mean) if self.normalize else mean,)

    def factors(self, query: tuple[Tensor], key: tuple[Tensor]) -> Factors:
        """Inner products."""
        return Factors(*query, *key)

    def paired(self, query: tuple[Tensor], key: tuple[Tensor]) -> Tensor:
        """Inner products of corresponding entries."""
        return self.factors(query, key).paired()

    def make_queue(self, size: int, dimension: int) -> Queue:
        """A queue of means."""
        return Queue(size, features=(dimension,))

    def statistics(self, query: tuple[Tensor], key: tuple[Tensor]) -> dict[str, Tensor]:
        """The mean length of the averages."""
        return {"resultant": torch.cat([query[0], key[0]]).norm(dim=-1).mean()}


class CosineLoss(FeatureAverage):
    """The two-view loss: contrast of cosine similarities."""

    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        memory_bank_size: int | Sequence[int] = 0,
        gather_distributed: bool = False,
        contrast: str = "infonce",
        in_batch: InBatch = "both",
        block_size: BlockSize = "auto",
    ) -> None:
        super().__init__(
            temperature, memory_bank_size, gather_distributed, contrast, in_batch, False, block_size
        )

    def represent(self, views: Tensor) -> tuple[Tensor]:
        """The one unit feature."""
        if views.shape[1] != 1:
            raise ValueError(
                f"CosineLoss takes one view a side; got m = {views.shape[1]} "
                "(LossAverage, FeatureAverage and DSFLoss take more)"
            )
        return super().represent(views)


class LossAverage(ContrastiveLoss[tuple[Tensor]]):
    """Loss_avg: the mean of the cosine loss over the m x m' pairs of views.

    Pair (l, l') contrasts the l-th view of each query with the l'-th views of all keys, so that
    every method spans the same images. ``views`` is m', of the keys, needed with a memory bank
    only.
    """

    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        memory_bank_size: int | Sequence[int] = 0,
        gather_distributed: bool = False,
        contrast: str = "infonce",
        in_batch: InBatch = "both",
        views: int = 1,
        block_size: BlockSize = "auto",
    ) -> None:
        if views < 1:
            raise ValueError(f"views must be at least 1; got {views}")
        self._views = views
        super().__init__(
            temperature, memory_bank_size, gather_distributed, contrast, in_batch, block_size
        )

    def represent(self, views: Tensor) -> tuple[Tensor]:
        """All unit features, (B, m, D)."""
        return (unit(views),)

    def factors(self, query: tuple[Tensor], key: tuple[Tensor]) -> Factors:
        """Cosines, (m, m', N, M)."""
        return Factors(query[0].movedim(1, 0).unsqueeze(1), key[0].movedim(1, 0))

    def paired(self, query: tuple[Tensor], key: tuple[Tensor]) -> Tensor:
        """Cosines of corresponding samples, (m, m', N)."""
        return matmul(query[0], key[0].mT).permute(1, 2, 0)

    def make_queue(self, size: int, dimension: int) -> Queue:
        """A queue of all views of each key."""
        return Queue(size, features=(self._views, dimension))

    def _against_batch(self, query: tuple[Tensor], key: tuple[Tensor]) -> Tensor:
        factors, _ = self._batch_factors(query, key)
        return factors.product()

    def _batch_factors(self, query: tuple[Tensor], key: tuple[Tensor]) -> tuple[Factors, Tensor]:
        # A problem a pair (l, l'): the l-th views of out0 and the l'-th of out1 together.
        problems = self._problems(query[0], key[0])
        every = self._problems(*self._gathered(query), *self._gathered(key))
        positive = self.paired(query, key)
        return Factors(problems, every), torch.cat([positive, positive], dim=-1)

    @staticmethod
    def _problems(query: Tensor, key: Tensor) -> Tensor:
        pairs = query.shape[1], key.shape[1]
        first = query.movedim(1, 0).unsqueeze(1).expand(*pairs, -1, -1)
        second = key.movedim(1, 0).unsqueeze(0).expand(*pairs, -1, -1)
        return torch.cat([first, second], dim=2)
