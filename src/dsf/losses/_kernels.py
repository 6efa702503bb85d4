"""Triton kernels of the streaming softmax: tiles of logits that never leave the chip.

Products are of tf32 parts, three of them, which together are as exact as float32 and much faster
than its own units. A tile takes some rows and some columns; where there are too few of one for all
processors, the other is cut into parts whose results are added up, in a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_PROGRAMS = 512  # enough for the processors of any GPU


class _Tile(NamedTuple):
    rows: int
    columns: int
    warps: int
    stages: int

    def narrow(self, width: int) -> "_Tile":
        """With as many numbers at most as rows of 128 dimensions have: what fits on the chip."""
        if width <= 128:
            return self
        return self._replace(rows=self.rows // 2, columns=self.columns // 2)


_FORWARD = _Tile(64, 64, 4, 2)
_OF_ROWS = _Tile(64, 64, 4, 2)
_OF_COLUMNS = _Tile(64, 64, 4, 2)


@triton.jit
def _logits(
    x, y, b, skip, row, column, N, M, WITH_B: tl.constexpr, SKIPS: tl.constexpr
):  # fmt: skip
    logits = tl.dot(x, tl.trans(y), input_precision="tf32x3")
    if WITH_B:
        logits -= tl.load(b + column, mask=column < M, other=0.0)[None, :]
    keep = (row < N)[:, None] & (column < M)[None, :]
    for number in tl.static_range(SKIPS):
        left_out = tl.load(skip + row * SKIPS + number, mask=row < N, other=-1)
        keep = keep & (column[None, :] != left_out[:, None])
    return tl.where(keep, logits, float("-inf"))


@triton.jit
def _tile(pointer, line, lines, D: tl.constexpr, WIDTH: tl.constexpr):
    place = tl.arange(0, WIDTH)
    inside = (line < lines)[:, None] & (place < D)[None, :]
    return tl.load(pointer + line[:, None].to(tl.int64) * D + place[None, :], inside, other=0.0)


@triton.jit
def _forward(
    x, y, b, skip, largest, total, N, M, part,
    D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    WITH_B: tl.constexpr, SKIPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * part
    rows = _tile(x, row, N, D, WIDTH)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    added = tl.zeros((ROWS,), tl.float32)
    for start in range(first, min(first + part, M), COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        columns = _tile(y, column, M, D, WIDTH)
        logits = _logits(rows, columns, b, skip, row, column, N, M, WITH_B, SKIPS)
        before = highest
        highest = tl.maximum(highest, tl.max(logits, 1))
        base = tl.where(highest == float("-inf"), 0.0, highest)
        added = added * tl.exp(before - base) + tl.sum(tl.exp(logits - base[:, None]), 1)
    place = tl.program_id(1) * N + row
    tl.store(largest + place, highest, mask=row < N)
    tl.store(total + place, added, mask=row < N)


@triton.jit
def _backward_rows(
    x, y, b, skip, total, gradient, of_x, N, M, part,
    D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    WITH_B: tl.constexpr, SKIPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * part
    rows = _tile(x, row, N, D, WIDTH)
    base = tl.load(total + row, mask=row < N, other=0.0)
    weight = tl.load(gradient + row, mask=row < N, other=0.0)
    result = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(first, min(first + part, M), COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        columns = _tile(y, column, M, D, WIDTH)
        logits = _logits(rows, columns, b, skip, row, column, N, M, WITH_B, SKIPS)
        shares = tl.exp(logits - base[:, None]) * weight[:, None]
        result = tl.dot(shares, columns, result, input_precision="tf32x3")
    width = tl.arange(0, WIDTH)
    place = (tl.program_id(1) * N + row)[:, None].to(tl.int64) * D + width[None, :]
    tl.store(of_x + place, result, mask=(row < N)[:, None] & (width < D)[None, :])


@triton.jit
def _backward_columns(
    x, y, b, skip, total, gradient, of_y, of_b, N, M, part,
    D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    WITH_B: tl.constexpr, SKIPS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * part
    columns = _tile(y, column, M, D, WIDTH)
    result = tl.zeros((COLUMNS, WIDTH), tl.float32)
    added = tl.zeros((COLUMNS,), tl.float32)
    for start in range(first, min(first + part, N), ROWS):
        row = start + tl.arange(0, ROWS)
        rows = _tile(x, row, N, D, WIDTH)
        base = tl.load(total + row, mask=row < N, other=0.0)
        weight = tl.load(gradient + row, mask=row < N, other=0.0)
        logits = _logits(rows, columns, b, skip, row, column, N, M, WITH_B, SKIPS)
        shares = tl.exp(logits - base[:, None]) * weight[:, None]
        added += tl.sum(shares, 0)
        result = tl.dot(tl.trans(shares), rows, result, input_precision="tf32x3")
    width = tl.arange(0, WIDTH)
    line = tl.program_id(1) * M + column
    place = line[:, None].to(tl.int64) * D + width[None, :]
    tl.store(of_y + place, result, mask=(column < M)[:, None] & (width < D)[None, :])
    tl.store(of_b + line, -added, mask=column < M)


def _grid(lines: int, tile: int, others: int, other_tile: int) -> tuple[int, int, int]:
    """Programs along both axes, and how many of the other lines each takes."""
    tiles = triton.cdiv(lines, tile)
    parts = max(1, min(_PROGRAMS // tiles, triton.cdiv(others, other_tile)))
    part = triton.cdiv(triton.cdiv(others, parts), other_tile) * other_tile
    return tiles, triton.cdiv(others, part), part


def _shape(tile: _Tile, x: Tensor, b: Tensor | None, skip: Tensor | None) -> dict[str, int | bool]:
    width = x.shape[-1]
    return {
        "D": width,
        "WIDTH": max(16, triton.next_power_of_2(width)),
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "WITH_B": b is not None,
        "SKIPS": 0 if skip is None else skip.shape[-1],
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def logsumexp(x: Tensor, y: Tensor, b: Tensor | None, skip: Tensor | None) -> Tensor:
    """(N,) log sum_j exp(x_i . y_j - b_j) of contiguous (N, D), (M, D), (M,) and (N, s)."""
    count, keys = len(x), len(y)
    tile = _FORWARD.narrow(x.shape[-1])
    tiles, parts, part = _grid(count, tile.rows, keys, tile.columns)
    largest, total = (x.new_empty((parts, count)) for _ in range(2))
    shape = _shape(tile, x, b, skip)
    _forward[tiles, parts](x, y, b, skip, largest, total, count, keys, part, **shape)
    return (largest + total.log()).logsumexp(dim=0)


def gradients(
    x: Tensor,
    y: Tensor,
    b: Tensor | None,
    skip: Tensor | None,
    total: Tensor,
    gradient: Tensor,
    of_x: bool,
    of_y: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, and of y and b, from that of ``logsumexp``, whose result is ``total``."""
    count, keys = len(x), len(y)
    arguments = (x, y, b, skip, total.masked_fill(total == -torch.inf, 0), gradient)
    result_x = result_y = result_b = None
    if of_x:
        tile = _OF_ROWS.narrow(x.shape[-1])
        tiles, parts, part = _grid(count, tile.rows, keys, tile.columns)
        shape = _shape(tile, x, b, skip)
        result_x = x.new_empty((parts, *x.shape))
        _backward_rows[tiles, parts](*arguments, result_x, count, keys, part, **shape)
        result_x = result_x.sum(dim=0)
    if of_y:
        tile = _OF_COLUMNS.narrow(x.shape[-1])
        tiles, parts, part = _grid(keys, tile.columns, count, tile.rows)
        shape = _shape(tile, x, b, skip)
        result_y, result_b = y.new_empty((parts, *y.shape)), y.new_empty((parts, keys))
        _backward_columns[tiles, parts](*arguments, result_y, result_b, count, keys, part, **shape)
        result_y, result_b = result_y.sum(dim=0), result_b.sum(dim=0)
    return result_x, result_y, result_b
