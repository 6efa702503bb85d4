"""The order of an epoch: a seeded permutation, dealt out to ranks, resumed at any batch."""

from collections.abc import Iterator

import torch
from torch import Tensor

from dsf import distributed
from dsf.random import permutation

# The last word of the counter, where other uses of the seed have an epoch or a step: no such
# number comes near.
_STREAM = 0xE90C0DE5


class EpochSampler:
    """Batches of sample indices.

    Rank r of n takes the positions r, r + n, r + 2 n, ... of one permutation a (seed, epoch), and
    all ranks have the same number of full batches: the samples of a step are the same, however
    many ranks share them. What is left over waits for another epoch, or makes a smaller batch at
    the end, of one size on all ranks: where it takes some more for that, the first samples of the
    permutation come a second time.

    Args:
        size: samples in the data set.
        batch_size: samples a batch and rank.
        seed: of the order, in [0, 2^64).
        rank: this process; by default what ``torch.distributed`` says.
        world_size: how many processes there are; by default what ``torch.distributed`` says.
        device: where the indices are made; bits do not depend on it.
        drop_last: whether to leave over what makes no full batch.

    Example:
        >>> sampler = EpochSampler(10, batch_size=2, seed=0, rank=0, world_size=2)
        >>> len(sampler)
        2
        >>> whole = list(sampler.batches(epoch=3))
        >>> resumed = list(sampler.batches(epoch=3, start=1))
        >>> torch.equal(whole[1], resumed[0])
        True
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        device: torch.device | str = "cpu",
        drop_last: bool = True,
    ) -> None:
        self.size = size
        self.batch_size = batch_size
        self.seed = seed
        self.rank = distributed.rank() if rank is None else rank
        self.world_size = distributed.world_size() if world_size is None else world_size
        self.device = torch.device(device)
        self.drop_last = drop_last
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank must be in [0, world_size); got {self.rank} of {self.world_size}"
            )
        if batch_size < 1 or len(self) < 1:
            raise ValueError(
                f"batch_size must be in [1, {size // self.world_size}] for {size} samples on "
                f"{self.world_size} ranks; got {batch_size}"
            )

    def __len__(self) -> int:
        """Batches an epoch."""
        step = self.batch_size * self.world_size
        return self.size // step if self.drop_last else -(-self.size // step)

    def order(self, epoch: int) -> Tensor:
        """The permutation that all ranks share, int64 (size,)."""
        step = torch.tensor(epoch, device=self.device)
        return permutation(self.seed, step, _STREAM, torch.arange(self.size, device=self.device))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """This rank's batches from batch number ``start`` on, (batch_size,) int64 or the rest."""
        if epoch < 0:
            raise ValueError(f"epoch must be >= 0; got {epoch}")
        if not 0 <= start <= len(self):
            raise ValueError(f"start must be in [0, {len(self)}]; got {start}")
        order = self.order(epoch)
        if not self.drop_last:
            missing = -self.size % self.world_size
            order = torch.cat([order, order.repeat(self.world_size)[:missing]])
        own = order[self.rank :: self.world_size]
        size = self.batch_size
        return (own[number * size : (number + 1) * size] for number in range(start, len(self)))
