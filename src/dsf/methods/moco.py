"""MoCo v2 (He et al., 2020; Chen et al., 2020) for many views."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from dsf import distributed
from dsf.losses import ContrastiveLoss
from dsf.methods._base import MethodOutput, beside, each_view, halves
from dsf.methods._momentum import MomentumMethod, both_ways
from dsf.random import permutation

Shuffle = Literal["global", "local", "none"]


class MoCo(MomentumMethod):
    """Keys from a momentum encoder, contrasted with a queue of earlier ones.

    Args:
        encoder, loss, projector, dimension, hidden: see :class:`dsf.methods.Method`; the loss has
            a memory bank.
        momentum: how much of itself the key side keeps in a step.
        momentum_steps: if given, the momentum rises to 1 in as many steps, by a half cosine.
        symmetric: contrast the second half of the views with keys of the first too, and add up
            both losses; all keys enter the queue, after both. Local views are queries in both.
        shuffle: encode the key views in random order, so that the groups of a split BatchNorm are
            others than the queries'. ``"global"`` mixes them over all processes, which sends the
            images there, ``"local"`` within each, ``"none"`` not at all.
        seed: of the order, which also depends on the step.

    Example:
        >>> from dsf.losses import DSFLoss
        >>> from dsf.models import create_encoder
        >>> method = MoCo(create_encoder("resnet-small"), DSFLoss(memory_bank_size=(64, 128)))
        >>> loss, diagnostics = method(torch.randn(4, 8, 3, 32, 32))  # eight views of each image
        >>> loss.backward()  # then the optimiser's step, and that of the momentum encoder:
        >>> method.after_step()
    """

    def __init__(
        self,
        encoder: nn.Module,
        loss: ContrastiveLoss[Any],
        projector: str | nn.Module = "mlp-bn",
        dimension: int = 128,
        hidden: int | None = None,
        momentum: float = 0.99,
        momentum_steps: int | None = None,
        symmetric: bool = False,
        shuffle: Shuffle = "global",
        seed: int = 0,
    ) -> None:
        if loss.queue is None:
            raise ValueError("MoCo takes a loss with a memory bank: memory_bank_size=(K, D)")
        bank = loss.queue.get_buffer(loss.queue.names[0]).shape[-1]
        if isinstance(projector, str) and bank != dimension:
            raise ValueError(
                f"dimension must be the D of the loss's memory_bank_size=(K, D), which is {bank}; "
                f"got {dimension}"
            )
        if shuffle not in get_args(Shuffle):
            raise ValueError(f"shuffle must be one of {get_args(Shuffle)}; got {shuffle!r}")
        super().__init__(encoder, loss, projector, dimension, hidden, momentum, momentum_steps)
        self.symmetric = symmetric
        self.shuffle = shuffle
        self.seed = seed

    def compute(self, views: Tensor, diagnose: bool, local: Tensor | None = None) -> MethodOutput:
        """The loss of two halves of the views: queries and keys; local ones are queries."""
        first, second = halves(views)
        small = None if local is None else each_view(self.project, local)
        out0, key1 = each_view(self.project, first), self._shuffled_keys(second, stream=0)
        out0 = beside(out0, small)
        if not self.symmetric:
            return self.contrast(out0, key1, diagnose)
        out1, key0 = each_view(self.project, second), self._shuffled_keys(first, stream=1)
        out1 = beside(out1, small)
        one = self.contrast(out0, key1, diagnose, update_queue=False)
        other = self.contrast(out1, key0, diagnose, update_queue=False)
        self.loss.remember(torch.cat([key1, key0]))
        return both_ways(one, other)

    @torch.no_grad()
    def _shuffled_keys(self, views: Tensor, stream: int) -> Tensor:
        if self.shuffle == "none" or not self.training:
            return each_view(self.keys, views)
        if self.shuffle == "local" or distributed.world_size() == 1:
            return each_view(lambda flat: self._in_order(flat, self._order(flat, stream)), views)
        return self._across_processes(views, stream)

    def _in_order(self, flat: Tensor, order: Tensor) -> Tensor:
        keys = self.keys(flat[order])
        return torch.empty_like(keys).index_copy_(0, order, keys)

    def _order(self, flat: Tensor, stream: int, count: int = 1) -> Tensor:
        indices = torch.arange(count * len(flat), device=flat.device)
        return permutation(self.seed, self.step, stream, indices)

    def _across_processes(self, views: Tensor, stream: int) -> Tensor:
        # Sample j of rank r is sample j * size + r of the whole batch, and rank r encodes every
        # size-th view from the r-th on of the shuffled whole: interleaved like the groups of a
        # split BatchNorm, so that a group falls whole to a rank.
        size, rank = distributed.world_size(), distributed.rank()
        order = self._order(views.flatten(0, 1), stream, size)
        whole = distributed.interleave(distributed.gather(views)).flatten(0, 1)
        keys = self.keys(whole[order[rank::size]])
        in_order = distributed.interleave(distributed.gather(keys))
        restored = torch.empty_like(in_order).index_copy_(0, order, in_order)
        return restored.view(-1, views.shape[1], restored.shape[-1])[rank::size]
