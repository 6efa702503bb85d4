"""Full precision, whatever the process has switched on for its networks."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Nothing is computed in half precision on this tensor's device."""
    kind = tensor.device.type
    return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b without TF32: where errors are multiplied by kappa."""
    if not _may_be_rounded(a):
        return a @ b
    result: Tensor = _full_matmul(a, b)
    return result


def _may_be_rounded(a: Tensor) -> bool:
    return a.device.type == "cuda" and a.dtype is torch.float32


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


@_full_matmul.register_vmap
def _(info: Any, dims: tuple[int | None, int | None], a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    rank = max(x.dim() - (dim is not None) for x, dim in zip((a, b), dims, strict=True))
    return matmul(_in_front(a, dims[0], rank), _in_front(b, dims[1], rank)), 0


def _in_front(x: Tensor, dim: int | None, rank: int) -> Tensor:
    if dim is None:
        return x
    x = x.movedim(dim, 0)
    return x[(slice(None), *[None] * (rank + 1 - x.dim()))]


@contextmanager
def _ieee() -> Iterator[None]:
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "ieee"
    try:
        yield
    finally:
        settings.fp32_precision = before
