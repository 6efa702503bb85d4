"""Triton kernels of GELU and LayerNorm, with what lies before them, in bfloat16.

Each computes in float32, and gives the gradient of the bias of the product before it in the pass
that makes the other gradients anyway. Sums over rows are kept for each program and added up in a
fixed order, so that results repeat themselves.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 128  # that a program of a backward kernel adds up


@triton.jit
def _normal(x):
    """exp(-x^2 / 2), and the normal distribution's share below x to within 1e-7.

    Abramowitz and Stegun, 7.1.26: a third of the instructions of the library's erf, which would
    keep the memory waiting.
    """
    bell = tl.exp2(x * x * -0.7213475204444817)
    t = 1.0 / (1.0 + 0.2316418882663604 * tl.abs(x))
    series = 0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)
    series = t * (0.127414796 + t * (-0.142248368 + t * series))
    tail = bell * series
    return bell, tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def _gelu(x, bias, out, N, C, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    place = row[:, None].to(tl.int64) * C + column[None, :]
    inside = (row < N)[:, None] & (column < C)[None, :]
    value = tl.load(x + place, inside, other=0.0).to(tl.float32)
    value += tl.load(bias + column, column < C, other=0.0)[None, :]
    _, below = _normal(value)
    tl.store(out + place, (value * below).to(tl.bfloat16), inside)


@triton.jit
def _gelu_backward(
    x, bias, gradient, of_x, of_bias, N, C,
    PART: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    shift = tl.load(bias + column, column < C, other=0.0)[None, :]
    added = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in tl.range(0, PART, ROWS, num_stages=3):
        row = tl.program_id(0) * PART + start + tl.arange(0, ROWS)
        place = row[:, None].to(tl.int64) * C + column[None, :]
        inside = (row < N)[:, None] & (column < C)[None, :]
        value = tl.load(x + place, inside, other=0.0).to(tl.float32) + shift
        bell, below = _normal(value)
        slope = below + value * bell * 0.3989422804014327
        result = tl.load(gradient + place, inside, other=0.0).to(tl.float32) * slope
        added += result
        tl.store(of_x + place, result.to(tl.bfloat16), inside)
    tl.store(of_bias + tl.program_id(0) * C + column, tl.sum(added, 0), column < C)


@triton.jit
def _add_norm(
    x, branch, branch_bias, weight, bias, total, out, mean, scale, N, C, eps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place = row[:, None].to(tl.int64) * C + column[None, :]
    known = (column < C)[None, :]
    inside = (row < N)[:, None] & known
    value = tl.load(x + place, inside, other=0.0)
    value += tl.load(branch + place, inside, other=0.0).to(tl.float32)
    value += tl.load(branch_bias + column, column < C, other=0.0)[None, :]
    tl.store(total + place, value, inside)
    centre = tl.sum(value, 1) / C
    value = tl.where(known, value - centre[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(value * value, 1) / C + eps)
    result = value * inverse[:, None] * tl.load(weight + column, column < C, other=0.0)[None, :]
    result += tl.load(bias + column, column < C, other=0.0)[None, :]
    tl.store(out + place, result.to(tl.bfloat16), inside)
    tl.store(mean + row, centre, row < N)
    tl.store(scale + row, inverse, row < N)


@triton.jit
def _add_norm_backward(
    total, weight, mean, scale, of_total, of_out, of_x, of_branch, sums, N, C,
    PART: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, WIDTH)
    known = (column < C)[None, :]
    factor = tl.load(weight + column, column < C, other=0.0)[None, :]
    of_branch_bias = tl.zeros((ROWS, WIDTH), tl.float32)
    of_weight = tl.zeros((ROWS, WIDTH), tl.float32)
    of_bias = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in tl.range(0, PART, ROWS, num_stages=3):
        row = tl.program_id(0) * PART + start + tl.arange(0, ROWS)
        place = row[:, None].to(tl.int64) * C + column[None, :]
        inside = (row < N)[:, None] & known
        centre = tl.load(mean + row, row < N, other=0.0)[:, None]
        inverse = tl.load(scale + row, row < N, other=0.0)[:, None]
        value = (tl.load(total + place, inside, other=0.0) - centre) * inverse
        value = tl.where(known, value, 0.0)
        gradient = tl.load(of_out + place, inside, other=0.0).to(tl.float32)
        of_bias += gradient
        of_weight += gradient * value
        gradient *= factor
        level = tl.sum(gradient, 1) / C
        along = tl.sum(gradient * value, 1) / C
        result = (gradient - level[:, None] - value * along[:, None]) * inverse
        result += tl.load(of_total + place, inside, other=0.0)
        result = tl.where(inside, result, 0.0)
        of_branch_bias += result
        tl.store(of_x + place, result, inside)
        tl.store(of_branch + place, result.to(tl.bfloat16), inside)
    sums += tl.program_id(0) * 3 * C + column
    tl.store(sums, tl.sum(of_branch_bias, 0), column < C)
    tl.store(sums + C, tl.sum(of_weight, 0), column < C)
    tl.store(sums + 2 * C, tl.sum(of_bias, 0), column < C)


def gelu(x: Tensor, bias: Tensor) -> Tensor:
    """GELU of x + bias."""
    count, width = x.numel() // x.shape[-1], x.shape[-1]
    out = torch.empty_like(x)
    grid = triton.cdiv(count, 8), triton.cdiv(width, 512)
    _gelu[grid](x, bias, out, count, width, ROWS=8, WIDTH=512, num_warps=4)
    return out


def gelu_backward(x: Tensor, bias: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the bias."""
    count, width = x.numel() // x.shape[-1], x.shape[-1]
    of_x = torch.empty_like(x)
    grid = triton.cdiv(count, _ROWS), triton.cdiv(width, 512)
    of_bias = bias.new_empty((grid[0], width))
    shape = {"PART": _ROWS, "ROWS": 8, "WIDTH": 512}
    _gelu_backward[grid](x, bias, gradient, of_x, of_bias, count, width, **shape, num_warps=4)
    return of_x, of_bias.sum(dim=0)


def add_norm(
    x: Tensor, branch: Tensor, branch_bias: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x + branch + branch_bias, its LayerNorm, and the means and inverse deviations of rows."""
    count, width = x.numel() // x.shape[-1], x.shape[-1]
    total, out = torch.empty_like(x), torch.empty_like(branch)
    mean, scale = (x.new_empty(x.shape[:-1]) for _ in range(2))
    tensors = x, branch, branch_bias, weight, bias, total, out, mean, scale
    shape = {"ROWS": 4, "WIDTH": triton.next_power_of_2(width)}
    _add_norm[triton.cdiv(count, 4),](*tensors, count, width, eps, **shape, num_warps=4)
    return total, out, mean, scale


def add_norm_backward(
    total: Tensor,
    weight: Tensor,
    mean: Tensor,
    scale: Tensor,
    of_total: Tensor,
    of_out: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x and branch, and (3, C) those of branch_bias, weight and bias."""
    count, width = total.numel() // total.shape[-1], total.shape[-1]
    of_x, of_branch = torch.empty_like(total), torch.empty_like(of_out)
    programs = triton.cdiv(count, _ROWS)
    sums = total.new_empty((programs, 3, width))
    tensors = total, weight, mean, scale, of_total, of_out, of_x, of_branch, sums
    shape = {"PART": _ROWS, "ROWS": 4, "WIDTH": triton.next_power_of_2(width)}
    _add_norm_backward[programs,](*tensors, count, width, **shape, num_warps=4)
    return of_x, of_branch, sums.sum(dim=0)
