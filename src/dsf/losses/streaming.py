"""The softmax over very many keys, without the matrix of logits."""

from typing import Any

import torch
from torch import Tensor

from dsf.losses._precision import matmul


def streaming_logsumexp(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, block: int
) -> Tensor:
    """log sum_j exp(x_i . y_j - b_j), for ``block`` keys at a time.

    Forward keeps a running maximum and sum a row; backward computes the softmax again, so that
    memory grows with N + M and with N * block, not with N * M, for one more matrix product.

    Args:
        x: (..., N, D).
        y: (..., M, D); leading dimensions broadcast.
        b: (M,), or none.
        skip: (N, s) columns that each row leaves out, or none.
        block: how many columns exist at a time.

    Returns:
        (..., N)
    """
    if block < 1:
        raise ValueError(f"block must be at least 1; got {block}")
    result: Tensor = _StreamingLogSumExp.apply(x, y, b, skip, block)
    return result


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
