"""Optimisers: torch's fused ones, LARS, and which parameters are not decayed."""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer


def parameter_groups(
    module: nn.Module, weight_decay: float, decay_all: bool = False
) -> list[dict[str, Any]]:
    """The trained parameters in one or two groups; biases and norms have none of the decay.

    These are the parameters with at most one dimension. Each group has ``adapt``, whether LARS
    scales its steps, which it does to the decayed ones only.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    vectors = [parameter for parameter in trained if parameter.dim() <= 1]
    others = [parameter for parameter in trained if parameter.dim() > 1]
    groups = [
        {"params": others, "weight_decay": weight_decay, "adapt": True},
        {"params": vectors, "weight_decay": weight_decay if decay_all else 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]


def create_optimiser(
    name: str,
    groups: Iterable[dict[str, Any]],
    lr: float,
    momentum: float = 0.9,
    betas: tuple[float, float] = (0.9, 0.999),
    trust: float = 1e-3,
) -> Optimizer:
    """``sgd``, ``adamw`` or ``lars``; one kernel for many parameters wherever they live.

    On a GPU the learning rate is a tensor there, so that a CUDA graph of the step can follow it.
    """
    groups = list(groups)
    parameters = [parameter for group in groups for parameter in group["params"]]
    on_gpu = bool(parameters) and all(parameter.is_cuda for parameter in parameters)
    how = {"fused": True} if on_gpu else {"foreach": True}
    rate = torch.tensor(lr, device=parameters[0].device) if on_gpu else lr
    if name == "sgd":
        return SGD(groups, lr=rate, momentum=momentum, **how)
    if name == "adamw":
        return AdamW(groups, lr=rate, betas=betas, capturable=on_gpu, **how)
    if name == "lars":
        return LARS(groups, lr=rate, momentum=momentum, trust=trust)
    raise ValueError(f"optimiser must be one of sgd, lars, adamw; got {name!r}")


class LARS(Optimizer):
    """SGD whose step, for each tensor of weights, is as long as the weights demand.

    With u = g + decay w, the update of the momentum buffer is v = momentum v + s u and that of the
    weights w - lr v, where s = trust |w| / |u|, or 1 where either is zero or ``adapt`` is False
    (You et al., 2017).

    Args:
        params: parameters or groups.
        lr: the learning rate.
        momentum: of the buffer.
        weight_decay: decay.
        trust: how far a step may go, relative to the weights.
        adapt: whether to scale.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 1e-3,
        adapt: bool = True,
    ) -> None:
        if not lr >= 0:
            raise ValueError(f"lr must be >= 0; got {lr}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "adapt": adapt,
        }
        super().__init__(params, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the parameters that have gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        updates = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        if group["adapt"]:
            scales = _scales(parameters, updates, group["trust"])
            torch._foreach_mul_(updates, list(scales.unbind()))
        buffers = [self._buffer(parameter) for parameter in parameters]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, updates)
        torch._foreach_sub_(parameters, torch._foreach_mul(buffers, group["lr"]))

    def _buffer(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def _scales(parameters: list[Tensor], updates: list[Tensor], trust: float) -> Tensor:
    weights = torch.stack(list(torch._foreach_norm(parameters)))
    lengths = torch.stack(list(torch._foreach_norm(updates)))
    usable = (weights > 0) & (lengths > 0)
    return torch.where(usable, trust * weights / lengths, 1.0)
