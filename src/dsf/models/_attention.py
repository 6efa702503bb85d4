"""Triton kernels of attention between few tokens with narrow heads, in bfloat16.

A program has one head of one image. What it goes through again and again, keys and values or
queries and gradients, stays in shared memory as up to four tiles of T0, T1, T2 and T3 tokens, the
last as small as can be; the others pass by in tiles of 64. The backward pass is two kernels, whose
programs are small enough that several share a processor and hide each other's waiting.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = tl.constexpr(64)  # what the tensor cores of Hopper take
_LOG2_E = 1.4426950408889634

# The fastest of those tried on an H200; 168 registers leave room for three programs.
_FORWARD = {"num_warps": 4, "num_stages": 3}
_QUERIES = {"num_warps": 4, "num_stages": 2, "maxnreg": 168}
_KEYS = {"num_warps": 4, "num_stages": 1, "maxnreg": 168}


@triton.jit
def _load(pointer, first, line, N: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr):
    """(ROWS, D) from a row on, and zeros where there is none."""
    row = first + tl.arange(0, ROWS)[:, None]
    return tl.load(pointer + row * line + tl.arange(0, D)[None, :], row < N, other=0.0)


@triton.jit
def _load_all(
    pointer, line, N: tl.constexpr, D: tl.constexpr,
    T0: tl.constexpr, T1: tl.constexpr, T2: tl.constexpr, T3: tl.constexpr,
):  # fmt: skip
    """All tiles; the first again in place of those there are not."""
    a = _load(pointer, 0, line, N, D, T0)
    b, c, d = a, a, a
    if T1:
        b = _load(pointer, T0, line, N, D, T1)
    if T2:
        c = _load(pointer, T0 + T1, line, N, D, T2)
    if T3:
        d = _load(pointer, T0 + T1 + T2, line, N, D, T3)
    return a, b, c, d


@triton.jit
def _store(pointer, value, first, line, N: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr):
    row = first + tl.arange(0, ROWS)[:, None]
    tl.store(pointer + row * line + tl.arange(0, D)[None, :], value.to(tl.bfloat16), row < N)


@triton.jit
def _add_keys(
    state, q, k, v, scale, FIRST: tl.constexpr, N: tl.constexpr, KEYS: tl.constexpr
):  # fmt: skip
    highest, added, mean = state
    logits = tl.dot(q, tl.trans(k))
    if FIRST + KEYS > N:
        known = FIRST + tl.arange(0, KEYS) < N
        logits = tl.where(known[None, :], logits, float("-inf"))
    top = tl.maximum(highest, tl.max(logits, 1) * scale)
    shares = tl.exp2(logits * scale - top[:, None])
    kept = tl.exp2(highest - top)
    mean = tl.dot(shares.to(tl.bfloat16), v, mean * kept[:, None])
    return top, added * kept + tl.sum(shares, 1), mean


@triton.jit
def _attend_rows(
    qkv, out, total, k, v, first, wide, scale,
    N: tl.constexpr, D: tl.constexpr,
    T0: tl.constexpr, T1: tl.constexpr, T2: tl.constexpr, T3: tl.constexpr,
):  # fmt: skip
    q = _load(qkv, first, 3 * wide, N, D, _TILE)
    highest = tl.full((_TILE,), float("-inf"), tl.float32)
    state = highest, tl.zeros((_TILE,), tl.float32), tl.zeros((_TILE, D), tl.float32)
    state = _add_keys(state, q, k[0], v[0], scale, 0, N, T0)
    if T1:
        state = _add_keys(state, q, k[1], v[1], scale, T0, N, T1)
    if T2:
        state = _add_keys(state, q, k[2], v[2], scale, T0 + T1, N, T2)
    if T3:
        state = _add_keys(state, q, k[3], v[3], scale, T0 + T1 + T2, N, T3)
    highest, added, mean = state
    _store(out, mean / added[:, None], first, wide, N, D, _TILE)
    row = first + tl.arange(0, _TILE)
    tl.store(total + row, highest + tl.log2(added), row < N)


@triton.jit
def _attend(
    qkv, out, total, H, scale,
    N: tl.constexpr, D: tl.constexpr,
    T0: tl.constexpr, T1: tl.constexpr, T2: tl.constexpr, T3: tl.constexpr,
):  # fmt: skip
    image, head = tl.program_id(0) // H, tl.program_id(0) % H
    wide = H * D
    qkv += image.to(tl.int64) * N * 3 * wide + head * D
    out += image.to(tl.int64) * N * wide + head * D
    total += tl.program_id(0) * N
    k = _load_all(qkv + wide, 3 * wide, N, D, T0, T1, T2, T3)
    v = _load_all(qkv + 2 * wide, 3 * wide, N, D, T0, T1, T2, T3)
    for first in range(0, N, _TILE):
        _attend_rows(qkv, out, total, k, v, first, wide, scale, N, D, T0, T1, T2, T3)


@triton.jit
def _add_to_queries(
    of_q, q, g, base, along, k, v, scale, FIRST: tl.constexpr, N: tl.constexpr, KEYS: tl.constexpr
):  # fmt: skip
    shares = tl.exp2(tl.dot(q, tl.trans(k)) * scale - base[:, None])
    if FIRST + KEYS > N:
        known = FIRST + tl.arange(0, KEYS) < N
        shares = tl.where(known[None, :], shares, 0.0)
    change = shares * (tl.dot(g, tl.trans(v)) - along[:, None])
    return tl.dot(change.to(tl.bfloat16), k, of_q)


@triton.jit
def _of_queries(
    qkv, out, total, alongs, gradient, of_qkv, k, v, first, wide, scale, factor,
    N: tl.constexpr, D: tl.constexpr,
    T0: tl.constexpr, T1: tl.constexpr, T2: tl.constexpr, T3: tl.constexpr,
):  # fmt: skip
    """Store the gradients of some queries; the sums of them and of the gradient."""
    q = _load(qkv, first, 3 * wide, N, D, _TILE)
    g = _load(gradient, first, wide, N, D, _TILE)
    exact = g.to(tl.float32)
    along = tl.sum(exact * _load(out, first, wide, N, D, _TILE).to(tl.float32), 1)
    row = first + tl.arange(0, _TILE)
    tl.store(alongs + row, along, row < N)
    base = tl.load(total + row, row < N, other=float("inf"))
    of_q = tl.zeros((_TILE, D), tl.float32)
    of_q = _add_to_queries(of_q, q, g, base, along, k[0], v[0], scale, 0, N, T0)
    if T1:
        of_q = _add_to_queries(of_q, q, g, base, along, k[1], v[1], scale, T0, N, T1)
    if T2:
        of_q = _add_to_queries(of_q, q, g, base, along, k[2], v[2], scale, T0 + T1, N, T2)
    if T3:
        of_q = _add_to_queries(of_q, q, g, base, along, k[3], v[3], scale, T0 + T1 + T2, N, T3)
    of_q *= factor
    _store(of_qkv, of_q, first, 3 * wide, N, D, _TILE)
    return tl.sum(of_q, 0), tl.sum(exact, 0)


@triton.jit
def _attend_queries(
    qkv, out, total, alongs, gradient, of_qkv, of_bias, H, scale, factor,
    N: tl.constexpr, D: tl.constexpr,
    T0: tl.constexpr, T1: tl.constexpr, T2: tl.constexpr, T3: tl.constexpr,
):  # fmt: skip
    image, head = tl.program_id(0) // H, tl.program_id(0) % H
    wide = H * D
    qkv += image.to(tl.int64) * N * 3 * wide + head * D
    of_qkv += image.to(tl.int64) * N * 3 * wide + head * D
    out += image.to(tl.int64) * N * wide + head * D
    gradient += image.to(tl.int64) * N * wide + head * D
    of_bias += image.to(tl.int64) * 3 * wide + head * D + tl.arange(0, D)
    total += tl.program_id(0) * N
    alongs += tl.program_id(0) * N
    k = _load_all(qkv + wide, 3 * wide, N, D, T0, T1, T2, T3)
    v = _load_all(qkv + 2 * wide, 3 * wide, N, D, T0, T1, T2, T3)
    of_q = tl.zeros((D,), tl.float32)
    of_v = tl.zeros((D,), tl.float32)
    for first in range(0, N, _TILE):
        of_rows, added = _of_queries(
            qkv, out, total, alongs, gradient, of_qkv, k, v, first, wide, scale, factor,
            N, D, T0, T1, T2, T3,
        )  # fmt: skip
        of_q += of_rows
        of_v += added
    # A bias of keys moves all logits of a row alike, which changes nothing.
    tl.store(of_bias, of_q)
    tl.store(of_bias + wide, tl.zeros((D,), tl.float32))
    tl.store(of_bias + 2 * wide, of_v)


@triton.jit
def _add_to_keys(
    sums, k, v, q, g, total, alongs, scale,
    FIRST: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    # Keys lie along the first axis: so shares are, in registers, the first factor of a product.
    of_k, of_v = sums
    row = FIRST + tl.arange(0, ROWS)
    base = tl.load(total + row, row < N, other=float("inf"))
    along = tl.load(alongs + row, row < N, other=0.0)
    shares = tl.exp2(tl.dot(k, tl.trans(q)) * scale - base[None, :])
    of_v = tl.dot(shares.to(tl.bfloat16), g, of_v)
    change = shares * (tl.dot(v, tl.trans(g)) - along[None, :])
    return tl.dot(change.to(tl.bfloat16), q, of_k), of_v


@triton.jit
def _of_keys(
    qkv, total, alongs, of_qkv, q, g, first, wide, scale, factor,
    N: tl.constexpr, D: tl.constexpr,
    T0: tl.constexpr, T1: tl.constexpr, T2: tl.constexpr, T3: tl.constexpr,
):  # fmt: skip
    k = _load(qkv + wide, first, 3 * wide, N, D, _TILE)
    v = _load(qkv + 2 * wide, first, 3 * wide, N, D, _TILE)
    sums = tl.zeros((_TILE, D), tl.float32), tl.zeros((_TILE, D), tl.float32)
    sums = _add_to_keys(sums, k, v, q[0], g[0], total, alongs, scale, 0, N, T0)
    if T1:
        sums = _add_to_keys(sums, k, v, q[1], g[1], total, alongs, scale, T0, N, T1)
    if T2:
        sums = _add_to_keys(sums, k, v, q[2], g[2], total, alongs, scale, T0 + T1, N, T2)
    if T3:
        sums = _add_to_keys(sums, k, v, q[3], g[3], total, alongs, scale, T0 + T1 + T2, N, T3)
    of_k, of_v = sums
    _store(of_qkv + wide, of_k * factor, first, 3 * wide, N, D, _TILE)
    _store(of_qkv + 2 * wide, of_v, first, 3 * wide, N, D, _TILE)


@triton.jit
def _attend_keys(
    qkv, total, alongs, gradient, of_qkv, H, scale, factor,
    N: tl.constexpr, D: tl.constexpr,
    T0: tl.constexpr, T1: tl.constexpr, T2: tl.constexpr, T3: tl.constexpr,
):  # fmt: skip
    image, head = tl.program_id(0) // H, tl.program_id(0) % H
    wide = H * D
    qkv += image.to(tl.int64) * N * 3 * wide + head * D
    of_qkv += image.to(tl.int64) * N * 3 * wide + head * D
    gradient += image.to(tl.int64) * N * wide + head * D
    total += tl.program_id(0) * N
    alongs += tl.program_id(0) * N
    q = _load_all(qkv, 3 * wide, N, D, T0, T1, T2, T3)
    g = _load_all(gradient, wide, N, D, T0, T1, T2, T3)
    for first in range(0, N, _TILE):
        _of_keys(
            qkv, total, alongs, of_qkv, q, g, first, wide, scale, factor,
            N, D, T0, T1, T2, T3,
        )  # fmt: skip


def attend(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """(B, N, H D) of (B, N, 3 H D), and the logarithms to base 2 of the softmax's sums."""
    images, tokens, width = qkv.shape
    out = qkv.new_empty((images, tokens, width // 3))
    total = qkv.new_empty((images, heads, tokens), dtype=torch.float32)
    shape, scale = _shape(tokens, width // 3 // heads)
    _attend[images * heads,](qkv, out, total, heads, scale * _LOG2_E, **shape, **_FORWARD)
    return out, total


def attend_backward(
    qkv: Tensor, out: Tensor, total: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of ``qkv`` and of a bias in it."""
    images, tokens, width = qkv.shape
    heads = total.shape[1]
    of_qkv, along = torch.empty_like(qkv), torch.empty_like(total)
    of_bias = qkv.new_empty((images, width), dtype=torch.float32)
    shape, scale = _shape(tokens, width // 3 // heads)
    scales = scale * _LOG2_E, scale
    tensors = qkv, out, total, along, gradient, of_qkv, of_bias
    _attend_queries[images * heads,](*tensors, heads, *scales, **shape, **_QUERIES)
    _attend_keys[images * heads,](
        qkv, total, along, gradient, of_qkv, heads, *scales, **shape, **_KEYS
    )
    return of_qkv, of_bias.sum(dim=0)


def _shape(tokens: int, width: int) -> tuple[dict[str, int], float]:
    tiles = [64] * (tokens // 64)
    if rest := tokens % 64:
        tiles.append(max(16, triton.next_power_of_2(rest)))
    named = zip(("T0", "T1", "T2", "T3"), [*tiles, 0, 0, 0], strict=False)
    return {"N": tokens, "D": width, **dict(named)}, width**-0.5
