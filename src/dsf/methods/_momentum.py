"""Methods with a second encoder that follows the first."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from dsf.losses import ContrastiveLoss
from dsf.methods._base import Method, MethodOutput, encode, head


class MomentumMethod(Method):
    """A method whose keys come from an exponential moving average of encoder and projector.

    Args:
        momentum: how much of itself the average keeps in a step.
        momentum_steps: if given, the momentum rises to 1 in as many steps, by a half cosine.
    """

    def __init__(
        self,
        encoder: nn.Module,
        loss: ContrastiveLoss[Any],
        projector: str | nn.Module,
        dimension: int,
        hidden: int | None,
        momentum: float,
        momentum_steps: int | None,
    ) -> None:
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be in [0, 1]; got {momentum}")
        if momentum_steps is not None and momentum_steps < 1:
            raise ValueError(f"momentum_steps must be at least 1; got {momentum_steps}")
        super().__init__(encoder, loss, projector, dimension, hidden)
        self.momentum = momentum
        self.momentum_steps = momentum_steps
        self.key_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.key_projector = copy.deepcopy(self.projector).requires_grad_(False)

    @torch.no_grad()
    def keys(self, images: Tensor) -> Tensor:
        """The key side's projections of (N, 3, H, W) images."""
        return head(self.key_projector, encode(self.key_encoder, images))

    @torch.no_grad()
    def after_step(self) -> None:
        """Let the key side follow."""
        super().after_step()
        keys: list[Tensor] = [*self.key_encoder.parameters(), *self.key_projector.parameters()]
        queries: list[Tensor] = [*self.encoder.parameters(), *self.projector.parameters()]
        follow(keys, queries, self._rate())

    def _rate(self) -> Tensor:
        # On the device, so that neither a resume nor a captured graph can freeze it.
        rate = torch.full((), 1 - self.momentum, device=self.step.device)
        if self.momentum_steps is None:
            return rate
        done = (self.step / self.momentum_steps).clamp(max=1)
        return rate * (1 + torch.cos(math.pi * done)) / 2


@torch.no_grad()
def follow(averages: list[Tensor], values: list[Tensor], rate: Tensor) -> None:
    """averages += rate * (values - averages); where they are equal nothing changes, not a bit."""
    differences = torch._foreach_sub(values, averages)
    torch._foreach_mul_(differences, rate)
    torch._foreach_add_(averages, differences)


def both_ways(one: MethodOutput, other: MethodOutput, scale: float = 1.0) -> MethodOutput:
    """The sum of the losses of both directions, and the mean or extreme of their diagnostics."""
    diagnostics = {
        name: _of_both(name, value, other.diagnostics[name])
        for name, value in one.diagnostics.items()
    }
    return MethodOutput((one.loss + other.loss) * scale, diagnostics)


def _of_both(name: str, one: Tensor, other: Tensor) -> Tensor:
    if name.endswith("_min"):
        return torch.minimum(one, other)
    return torch.maximum(one, other) if name.endswith("_max") else (one + other) / 2
