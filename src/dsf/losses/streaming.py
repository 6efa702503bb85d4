"""The softmax over very many keys, without the matrix of logits."""

from importlib.util import find_spec
from itertools import product
from typing import Any

import torch
from torch import Tensor

from dsf.losses._precision import matmul

_BLOCK = 2**24  # logits that exist at a time, where nobody says how many: 64 MiB
_WIDEST = 256  # dimensions that a kernel's tile holds
_HAS_TRITON = find_spec("triton") is not None


def streaming_logsumexp(
    x: Tensor,
    y: Tensor,
    b: Tensor | None = None,
    skip: Tensor | None = None,
    block: int | None = None,
) -> Tensor:
    """log sum_j exp(x_i . y_j - b_j), for some keys at a time.

    Forward keeps a running maximum and sum a row; backward computes the softmax again, so that
    memory grows with N + M and with N * block, not with N * M, for one more matrix product. On a
    GPU, in float32, a Triton kernel does both, whose tiles never reach the memory.

    Args:
        x: (..., N, D).
        y: (..., M, D); leading dimensions broadcast.
        b: (M,), or none.
        skip: (N, s) columns that each row leaves out, or none.
        block: how many columns exist at a time, without the kernel; by default as many as make
            2^24 logits.

    Returns:
        (..., N)
    """
    if block is not None and block < 1:
        raise ValueError(f"block must be at least 1; got {block}")
    if x.is_cuda and x.dtype == torch.float32 and x.shape[-1] <= _WIDEST and _HAS_TRITON:
        return _of_all_problems(x, y, b, skip)
    rows = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]).numel() * x.shape[-2]
    result: Tensor = _StreamingLogSumExp.apply(x, y, b, skip, block or max(1, _BLOCK // rows))
    return result


def _of_all_problems(x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None) -> Tensor:
    leading = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = (tensor.expand(*leading, *tensor.shape[-2:]) for tensor in (x, y))
    results = [_kernel(x[i], y[i], b, skip) for i in product(*map(range, leading))]
    return torch.stack(results).view(*leading, x.shape[-2])


@torch.library.custom_op("dsf::streaming_logsumexp", mutates_args=())
def _kernel(x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None) -> Tensor:
    from dsf.losses import _kernels

    return _kernels.logsumexp(*_contiguous(x, y, b, skip))


@_kernel.register_fake
def _(x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[:1])


@torch.library.custom_op("dsf::streaming_logsumexp_backward", mutates_args=())
def _kernel_backward(
    x: Tensor,
    y: Tensor,
    b: Tensor | None,
    skip: Tensor | None,
    total: Tensor,
    gradient: Tensor,
    need_x: bool,
    need_y: bool,
) -> list[Tensor]:
    from dsf.losses import _kernels

    arguments = (*_contiguous(x, y, b, skip), total, gradient.contiguous())
    found = _kernels.gradients(*arguments, need_x, need_y)
    return [tensor for tensor in found if tensor is not None]


@_kernel_backward.register_fake
def _(
    x: Tensor,
    y: Tensor,
    b: Tensor | None,
    skip: Tensor | None,
    total: Tensor,
    gradient: Tensor,
    need_x: bool,
    need_y: bool,
) -> list[Tensor]:
    of_x = [x.new_empty(x.shape)] if need_x else []
    return of_x + ([y.new_empty(y.shape), y.new_empty(y.shape[:1])] if need_y else [])


def _backward_of_kernel(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    need_x, need_y, need_b = ctx.needs_input_grad[:3]
    found = iter(_kernel_backward(*ctx.saved_tensors, gradient, need_x, need_y or need_b))
    of_x = next(found) if need_x else None
    of_y, of_b = (next(found), next(found)) if need_y or need_b else (None, None)
    return of_x, of_y if need_y else None, of_b if need_b else None, None


def _save_for_kernel(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


_kernel.register_autograd(_backward_of_kernel, setup_context=_save_for_kernel)


def _contiguous(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    b, skip = (tensor if tensor is None else tensor.contiguous() for tensor in (b, skip))
    return x.contiguous(), y.contiguous(), b, skip


class _StreamingLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, block: int
    ) -> Tensor:
        total = x.new_full((), -torch.inf)
        for start in range(0, y.shape[-2], block):
            logits = _block(x, y, b, skip, start, block)
            total = torch.logaddexp(total, logits.logsumexp(dim=-1))
        ctx.save_for_backward(x, y, b, skip, total)
        ctx.block = block
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, y, b, skip, total = ctx.saved_tensors
        block = ctx.block
        total = total.masked_fill(total == -torch.inf, 0)  # a row that leaves all columns out
        need_x, need_y, need_b = ctx.needs_input_grad[:3]
        of_x = torch.zeros_like(x)
        of_y: list[Tensor] = []
        of_b: list[Tensor] = []
        for start in range(0, y.shape[-2], block):
            logits = _block(x, y, b, skip, start, block)
            weights = (logits - total.unsqueeze(-1)).exp() * gradient.unsqueeze(-1)
            if need_x:
                of_x += matmul(weights, y[..., start : start + block, :]).sum_to_size(x.shape)
            if need_y:
                shape = (*y.shape[:-2], weights.shape[-1], y.shape[-1])
                of_y.append(matmul(weights.mT, x).sum_to_size(shape))
            if need_b:
                of_b.append(-weights.flatten(0, -2).sum(dim=0))
        return (
            of_x if need_x else None,
            torch.cat(of_y, dim=-2) if need_y else None,
            torch.cat(of_b) if need_b else None,
            None,
            None,
        )


def _block(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, start: int, block: int
) -> Tensor:
    logits = matmul(x, y[..., start : start + block, :].mT)
    if b is not None:
        logits = logits - b[start : start + block]
    if skip is not None:
        columns = torch.arange(start, start + logits.shape[-1], device=x.device)
        left_out = (skip.unsqueeze(-1) == columns).any(dim=-2)
        logits = logits.masked_fill(left_out, -torch.inf)
    return logits
