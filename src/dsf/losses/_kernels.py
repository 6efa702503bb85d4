"""Triton kernels of the streaming softmax: tiles of logits that never leave the chip.

A float32 is the sum of three bfloat16; six products of such parts are together as exact as one of
float32, and on tensor cores much faster than its own units. Forward also adds up the columns in
the proportions of the softmax, as FlashAttention does (Dao et al., 2022): that is the gradient of
the rows but for a factor, so that backward need not compute the logits again for them.

A program takes a tile of rows (for the gradients of columns: of columns) and goes through the
others; where there are too few tiles for all processors, the others are cut into parts whose
results are added up, in a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_PROGRAMS = 256  # about twice the processors of a large GPU


class _Tile(NamedTuple):
    own: int  # lines that a program keeps
    others: int  # lines that it takes at a time
    warps: int
    stages: int

    def narrow(self, width: int) -> "_Tile":
        """With as many numbers at most as lines of 128 dimensions have."""
        if width <= 128:
            return self
        return _Tile(self.own // 2, self.others // 2, max(4, self.warps // 2), self.stages)


# The largest that, compiled for 128 dimensions, fit into registers: the first on Hopper, whose
# tensor cores read from shared memory, of which it takes 193 KiB; the second, with 56, everywhere.
_HOPPER = _Tile(128, 64, 8, 2)
_ANY = _Tile(32, 32, 4, 1)


@triton.jit
def _three(value):
    first = value.to(tl.bfloat16)
    rest = value - first.to(tl.float32)
    second = rest.to(tl.bfloat16)
    return first, second, (rest - second.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _split(x, parts, count, SIZE: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = place < count
    first, second, third = _three(tl.load(x + place, inside))
    tl.store(parts + place, first, inside)
    tl.store(parts + (place + count), second, inside)
    tl.store(parts + (place + count + count), third, inside)  # 2 * count may overflow


@triton.jit
def _lines(pointer, line, lines, D: tl.constexpr, WIDTH: tl.constexpr):
    place = tl.arange(0, WIDTH)
    inside = (line < lines)[:, None] & (place < D)[None, :]
    return tl.load(pointer + line[:, None].to(tl.int64) * D + place[None, :], inside, other=0.0)


@triton.jit
def _three_lines(pointer, line, lines, D: tl.constexpr, WIDTH: tl.constexpr):
    part = lines.to(tl.int64) * D
    first = _lines(pointer, line, lines, D, WIDTH)
    second = _lines(pointer + part, line, lines, D, WIDTH)
    return first, second, _lines(pointer + 2 * part, line, lines, D, WIDTH)


@triton.jit
def _add_product(result, a0, a1, a2, b0, b1, b2):
    result = tl.dot(a1, b1, result)  # the smallest first
    result = tl.dot(a0, b2, result)
    result = tl.dot(a2, b0, result)
    result = tl.dot(a0, b1, result)
    result = tl.dot(a1, b0, result)
    return tl.dot(a0, b0, result)


@triton.jit(do_not_specialize=["N", "M", "part"])
def _forward(
    x, y, b, skip, largest, total, mean, N, M, part,
    D: tl.constexpr, WIDTH: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
    WITH_B: tl.constexpr, SKIPS: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * OWN + tl.arange(0, OWN)
    first = tl.program_id(1) * part
    x0, x1, x2 = _three_lines(x, row, N, D, WIDTH)
    highest = tl.full((OWN,), float("-inf"), tl.float32)
    added = tl.zeros((OWN,), tl.float32)
    result = tl.zeros((OWN, WIDTH), tl.float32)
    for start in range(first, min(first + part, M), OTHERS):
        column = start + tl.arange(0, OTHERS)
        y0, y1, y2 = _three_lines(y, column, M, D, WIDTH)
        logits = tl.zeros((OWN, OTHERS), tl.float32)
        logits = _add_product(logits, x0, x1, x2, tl.trans(y0), tl.trans(y1), tl.trans(y2))
        if WITH_B:
            logits -= tl.load(b + column, mask=column < M, other=0.0)[None, :]
        keep = (row < N)[:, None] & (column < M)[None, :]
        for number in tl.static_range(SKIPS):
            left_out = tl.load(skip + row * SKIPS + number, mask=row < N, other=-1)
            keep = keep & (column[None, :] != left_out[:, None])
        logits = tl.where(keep, logits, float("-inf"))
        before = highest
        highest = tl.maximum(highest, tl.max(logits, 1))
        base = tl.where(highest == float("-inf"), 0.0, highest)
        shares = tl.exp(logits - base[:, None])
        scale = tl.exp(before - base)
        added = added * scale + tl.sum(shares, 1)
        if MEAN:
            s0, s1, s2 = _three(shares)
            result = _add_product(result * scale[:, None], s0, s1, s2, y0, y1, y2)
    line = tl.program_id(1) * N + row
    tl.store(largest + line, highest, mask=row < N)
    tl.store(total + line, added, mask=row < N)
    if MEAN:
        width = tl.arange(0, WIDTH)
        place = line[:, None].to(tl.int64) * D + width[None, :]
        tl.store(mean + place, result, mask=(row < N)[:, None] & (width < D)[None, :])


@triton.jit(do_not_specialize=["N", "M", "part"])
def _backward(
    x, y, b, skip, total, gradient, of_y, of_b, N, M, part,
    D: tl.constexpr, WIDTH: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
    WITH_B: tl.constexpr, SKIPS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * OWN + tl.arange(0, OWN)
    first = tl.program_id(1) * part
    y0, y1, y2 = _three_lines(y, column, M, D, WIDTH)
    less = tl.zeros((OWN,), tl.float32)
    if WITH_B:
        less = tl.load(b + column, mask=column < M, other=0.0)
    result = tl.zeros((OWN, WIDTH), tl.float32)
    added = tl.zeros((OWN,), tl.float32)
    for start in range(first, min(first + part, N), OTHERS):
        row = start + tl.arange(0, OTHERS)
        x0, x1, x2 = _three_lines(x, row, N, D, WIDTH)
        base = tl.load(total + row, mask=row < N, other=0.0)
        weight = tl.load(gradient + row, mask=row < N, other=0.0)
        logits = tl.zeros((OWN, OTHERS), tl.float32)
        logits = _add_product(logits, y0, y1, y2, tl.trans(x0), tl.trans(x1), tl.trans(x2))
        keep = (column < M)[:, None] & (row < N)[None, :]
        for number in tl.static_range(SKIPS):
            left_out = tl.load(skip + row * SKIPS + number, mask=row < N, other=-1)
            keep = keep & (column[:, None] != left_out[None, :])
        logits = tl.where(keep, logits - less[:, None], float("-inf"))
        shares = tl.exp(logits - base[None, :]) * weight[None, :]
        added += tl.sum(shares, 1)
        s0, s1, s2 = _three(shares)
        result = _add_product(result, s0, s1, s2, x0, x1, x2)
    line = tl.program_id(1) * M + column
    width = tl.arange(0, WIDTH)
    place = line[:, None].to(tl.int64) * D + width[None, :]
    tl.store(of_y + place, result, mask=(column < M)[:, None] & (width < D)[None, :])
    tl.store(of_b + line, -added, mask=column < M)


def logsumexp(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, with_mean: bool
) -> tuple[Tensor, Tensor]:
    """(N,) log sum_j exp(x_i . y_j - b_j) of contiguous (N, D), (M, D), (M,) and (N, s).

    Beside it (N, D), the mean of the y_j in the proportions of these terms, or an empty tensor
    where it is not asked for.
    """
    (count, width), keys = x.shape, len(y)
    tile = _tile(x)
    tiles, parts, part = _grid(count, tile.own, keys, tile.others)
    largest, added = (x.new_empty((parts, count)) for _ in range(2))
    mean = x.new_empty((parts, count, width) if with_mean else (0, width))
    shape = _shape(tile, width, b, skip)
    arguments = (_parts(x), _parts(y), b, skip, largest, added, mean, count, keys, part)
    _forward[tiles, parts](*arguments, MEAN=with_mean, **shape)
    total = (largest + added.log()).logsumexp(dim=0)
    if with_mean:
        share = (largest - total.masked_fill(total == -torch.inf, 0)).exp()
        mean = mean.mul_(share.unsqueeze(-1)).sum(dim=0)
    return total, mean


def gradients(
    x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None, total: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Those of y and b, from that of ``logsumexp``, whose result is ``total``."""
    (count, width), keys = x.shape, len(y)
    tile = _tile(x)
    tiles, parts, part = _grid(keys, tile.own, count, tile.others)
    of_y, of_b = x.new_empty((parts, keys, width)), x.new_empty((parts, keys))
    total = total.masked_fill(total == -torch.inf, 0)
    arguments = (_parts(x), _parts(y), b, skip, total, gradient, of_y, of_b, count, keys, part)
    _backward[tiles, parts](*arguments, **_shape(tile, width, b, skip))
    return of_y.sum(dim=0), of_b.sum(dim=0)


def _parts(x: Tensor) -> Tensor:
    """(3, N, D) in bfloat16, whose sum over the first is x."""
    parts = x.new_empty((3, *x.shape), dtype=torch.bfloat16)
    _split[(triton.cdiv(x.numel(), 1024),)](x, parts, x.numel(), SIZE=1024)
    return parts


def _tile(x: Tensor) -> _Tile:
    hopper = (
        x.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(x.device)[0] == 9
    )
    return (_HOPPER if hopper else _ANY).narrow(x.shape[-1])


def _grid(lines: int, tile: int, others: int, other_tile: int) -> tuple[int, int, int]:
    """Programs along both axes, and how many of the other lines each takes."""
    tiles = triton.cdiv(lines, tile)
    parts = max(1, min(_PROGRAMS // tiles, triton.cdiv(others, other_tile)))
    part = triton.cdiv(triton.cdiv(others, parts), other_tile) * other_tile
    return tiles, triton.cdiv(others, part), part


def _shape(tile: _Tile, width: int, b: Tensor | None, skip: Tensor | None) -> dict[str, int | bool]:
    return {
        "D": width,
        "WIDTH": max(16, triton.next_power_of_2(width)),
        "OWN": tile.own,
        "OTHERS": tile.others,
        "WITH_B": b is not None,
        "SKIPS": 0 if skip is None else skip.shape[-1],
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
