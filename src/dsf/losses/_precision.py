"""Matrix products in full float32, whatever the process has switched on for its networks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b without TF32: logits multiply errors by kappa."""
    if a.device.type != "cuda" or a.dtype is not torch.float32:
        return a @ b
    result: Tensor = _full_matmul(a, b)
    return result


# An operator of its own, because a compiled graph cannot change the setting half-way.
@torch.library.custom_op("dsf::full_matmul", mutates_args=())
def _full_matmul(a: Tensor, b: Tensor) -> Tensor:
    with _ieee():
        return a @ b


@_full_matmul.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors
    need_a, need_b = ctx.needs_input_grad
    return (
        matmul(gradient, b.mT).sum_to_size(a.shape) if need_a else None,
        matmul(a.mT, gradient).sum_to_size(b.shape) if need_b else None,
    )


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


_full_matmul.register_autograd(_backward, setup_context=_save)


@contextmanager
def _ieee() -> Iterator[None]:
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "ieee"
    try:
        yield
    finally:
        settings.fp32_precision = before
