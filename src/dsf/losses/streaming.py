"""The softmax over very many keys, without the matrix of logits."""

from importlib.util import find_spec
from itertools import product
from typing import Any

import torch
from torch import Tensor

from dsf.precision import matmul

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

    Forward keeps a running maximum and sum a row, and, where x has a gradient, the running mean of
    the keys, which is that gradient but for a factor. For the gradients of y and b backward
    computes the softmax again. So memory grows with N + M and with N * block, not with N * M. On a
    GPU of Nvidia's Ampere or later, in float32, Triton kernels do both, whose tiles never reach
    the memory; these have no second derivatives.

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
    with_mean = x.requires_grad and torch.is_grad_enabled()
    if x.is_cuda and x.dtype == torch.float32 and x.shape[-1] <= _WIDEST and _HAS_TRITON:
        return _of_all_problems(x, y, b, skip, with_mean)
    rows = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]).numel() * x.shape[-2]
    block = block or _default_block(rows)
    result: Tensor = _StreamingLogSumExp.apply(x, y, b, skip, block, with_mean)
    return result


def _default_block(rows: int) -> int:
    return max(1, _BLOCK // rows)


def _of_all_problems(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, with_mean: bool
) -> Tensor:
    leading = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = (tensor.expand(*leading, *tensor.shape[-2:]) for tensor in (x, y))
    results = [_kernel(x[i], y[i], b, skip, with_mean)[0] for i in product(*map(range, leading))]
    return torch.stack(results).view(*leading, x.shape[-2])


@torch.library.custom_op("dsf::streaming_logsumexp", mutates_args=())
def _kernel(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, with_mean: bool
) -> tuple[Tensor, Tensor]:
    if not _multiplies_bfloat16(x.device):
        return _forward_in_blocks(x, y, b, skip, _default_block(len(x)), with_mean)
    from dsf.losses import _kernels

    with torch.cuda.device_of(x):  # Triton starts kernels on the current GPU
        return _kernels.logsumexp(*_contiguous(x, y, b, skip), with_mean)


# Asked within the operators, where a compiler does not look.
def _multiplies_bfloat16(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


@_kernel.register_fake
def _(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, with_mean: bool
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[:1]), x.new_empty((len(x) if with_mean else 0, x.shape[1]))


@torch.library.custom_op("dsf::streaming_logsumexp_backward", mutates_args=())
def _kernel_backward(
    x: Tensor,
    y: Tensor,
    b: Tensor | None,
    skip: Tensor | None,
    total: Tensor,
    mean: Tensor,
    gradient: Tensor,
    need_x: bool,
    need_y: bool,
) -> list[Tensor]:
    found = [mean * gradient.unsqueeze(-1)] if need_x else []
    if need_y and not _multiplies_bfloat16(x.device):
        found += _backward_in_blocks(x, y, b, skip, total, gradient, _default_block(len(x)))
    elif need_y:
        from dsf.losses import _kernels

        arguments = _contiguous(x, y, b, skip)
        with torch.cuda.device_of(x):
            found += _kernels.gradients(*arguments, total, gradient.contiguous())
    return found


@_kernel_backward.register_fake
def _(
    x: Tensor,
    y: Tensor,
    b: Tensor | None,
    skip: Tensor | None,
    total: Tensor,
    mean: Tensor,
    gradient: Tensor,
    need_x: bool,
    need_y: bool,
) -> list[Tensor]:
    of_x = [x.new_empty(x.shape)] if need_x else []
    return of_x + ([y.new_empty(y.shape), y.new_empty(y.shape[:1])] if need_y else [])


def _backward_of_kernel(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    need_x, need_y, need_b = ctx.needs_input_grad[:3]
    found = iter(_kernel_backward(*ctx.saved_tensors, gradient, need_x, need_y or need_b))
    of_x = next(found) if need_x else None
    of_y, of_b = (next(found), next(found)) if need_y or need_b else (None, None)
    return of_x, of_y if need_y else None, of_b if need_b else None, None, None


def _save_for_kernel(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:4], *output)


_kernel.register_autograd(_backward_of_kernel, setup_context=_save_for_kernel)


def _contiguous(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    b, skip = (tensor if tensor is None else tensor.contiguous() for tensor in (b, skip))
    return x.contiguous(), y.contiguous(), b, skip


class _StreamingLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        b: Tensor | None,
        skip: Tensor | None,
        block: int,
        with_mean: bool,
    ) -> Tensor:
        total, mean = _forward_in_blocks(x, y, b, skip, block, with_mean)
        ctx.save_for_backward(x, y, b, skip, total, mean)
        ctx.block = block
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, y, b, skip, total, mean = ctx.saved_tensors
        need_x, need_y, need_b = ctx.needs_input_grad[:3]
        of_x = of_y = of_b = None
        if need_x:
            if torch.is_grad_enabled():  # asked for second derivatives, which the one kept lacks
                mean = _mean_in_blocks(x, y, b, skip, total, ctx.block)
            of_x = (mean * gradient.unsqueeze(-1)).sum_to_size(x.shape)
        if need_y or need_b:
            of_y, of_b = _backward_in_blocks(x, y, b, skip, total, gradient, ctx.block)
        return of_x, of_y if need_y else None, of_b if need_b else None, None, None, None


def _forward_in_blocks(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, block: int, with_mean: bool
) -> tuple[Tensor, Tensor]:
    total = x.new_full((), -torch.inf)
    mean = x.new_zeros(()) if with_mean else x.new_zeros((0, x.shape[-1]))
    for start in range(0, y.shape[-2], block):
        logits = _block(x, y, b, skip, start, block)
        before, total = total, torch.logaddexp(total, logits.logsumexp(dim=-1))
        if with_mean:
            base = _finite(total).unsqueeze(-1)
            share = matmul((logits - base).exp(), y[..., start : start + block, :])
            mean = mean * (before.unsqueeze(-1) - base).exp() + share
    return total, mean


def _mean_in_blocks(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, total: Tensor, block: int
) -> Tensor:
    mean, total = x.new_zeros(()), _finite(total).unsqueeze(-1)
    for start in range(0, y.shape[-2], block):
        shares = (_block(x, y, b, skip, start, block) - total).exp()
        mean = mean + matmul(shares, y[..., start : start + block, :])
    return mean


def _backward_in_blocks(
    x: Tensor,
    y: Tensor,
    b: Tensor | None,
    skip: Tensor | None,
    total: Tensor,
    gradient: Tensor,
    block: int,
) -> tuple[Tensor, Tensor]:
    """The gradients of y and b."""
    total, gradient = _finite(total).unsqueeze(-1), gradient.unsqueeze(-1)
    of_y: list[Tensor] = []
    of_b: list[Tensor] = []
    for start in range(0, y.shape[-2], block):
        weights = (_block(x, y, b, skip, start, block) - total).exp() * gradient
        shape = (*y.shape[:-2], weights.shape[-1], y.shape[-1])
        of_y.append(matmul(weights.mT, x).sum_to_size(shape))
        of_b.append(-weights.flatten(0, -2).sum(dim=0))
    return torch.cat(of_y, dim=-2), torch.cat(of_b)


def _finite(total: Tensor) -> Tensor:
    return total.masked_fill(total == -torch.inf, 0)  # of a row that leaves all columns out


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
