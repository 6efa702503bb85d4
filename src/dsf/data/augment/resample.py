"""Crops resized as PIL does it, exactly, and composed with an affine map in one go.

PIL's bilinear filter is a triangle over the pixels of the crop, one pixel of the input wide to
each side, or one of the output where that is wider. Along an axis of ``stored`` pixels a view of
``size`` pixels needs no more than ``tap_count`` of them.

An image may be stored squashed to a square; crops are then given in pixels of the original.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dsf.data.augment.fixed import divide, per_view
from dsf.data.augment.geometry import PLACES, coordinates
from dsf.data.augment.parameters import Parameters
from dsf.data.augment.planes import Planes, eager_on_cpu

MAX_SHRINK = 4
"""How many times larger than the views images may be for ``crop_affine``."""

_WEIGHT_BITS = 22  # PIL's own
_SMALL = 48 * 48  # pixels of an image that are not worth a step of Python for each view
_Taps = tuple[Tensor, Tensor]


def tap_count(stored: int, size: int) -> int:
    """How many pixels the filter can meet: an open interval of this length holds no more."""
    return math.ceil(2 * max(1, stored / size))


def crop(images: Tensor, parameters: Parameters, sizes: Tensor, positions: Tensor) -> Planes:
    """Crop and resize, one axis after the other, with PIL's weights and rounding.

    Args:
        images: (B, 3, H, W) uint8.
        parameters: of V = B M views.
        sizes: (V, 2) int64, the original height and width.
        positions: int64 arange(size).

    Returns:
        Three (V, size, size) planes of uint8.
    """
    batch, _, height, width = images.shape
    rows, columns = sizes.unbind(-1)
    x, x_weights = _filter(parameters.left, parameters.width, columns, width, positions)
    y, y_weights = _filter(parameters.top, parameters.height, rows, height, positions)
    views = x.shape[0]
    if height * width > _SMALL and eager_on_cpu(images):
        top, bottom = _window(parameters.top, parameters.height, rows, height)
        return _one_by_one(images, (top, bottom), (x, x_weights), (y, y_weights))

    def resize(plane: Tensor) -> Tensor:
        shape = (batch, views // batch, height, width)
        plane = plane[:, None].expand(shape).reshape(views, height, width)
        plane = _weigh(plane, 2, x[:, None], x_weights[:, None])
        return _weigh(plane, 1, y[:, :, None], y_weights[:, :, None])

    red, green, blue = (resize(plane) for plane in images.unbind(1))
    return red, green, blue


def _one_by_one(
    images: Tensor, window: tuple[Tensor, Tensor], across: _Taps, down: _Taps
) -> Planes:
    # On a CPU only the rows of the crop are resized, and whole lines are copied and weighed at a
    # time: columns become lines for the first axis. Beyond the window the weight is 0, whatever
    # the line.
    size, each = across[0].shape[1], across[0].shape[0] // len(images)
    columns = images.permute(0, 3, 1, 2).contiguous()  # (B, W, 3, H)
    result = torch.empty(3, len(across[0]), size, size, dtype=torch.uint8)
    first, last = (edge[:, None, None] for edge in window)
    rows = torch.minimum(torch.maximum(down[0], first), last) - first
    x, y = _by_tap(*across), _by_tap(rows, down[1])
    for view, (top, bottom) in enumerate(zip(*(edge.tolist() for edge in window), strict=True)):
        lines = columns[view // each, :, :, top : bottom + 1].flatten(1)
        lines = _weigh_lines(lines, x[view])
        lines = _weigh_lines(lines.view(size, 3, -1).permute(1, 2, 0).contiguous(), y[view])
        result[:, view] = lines
    red, green, blue = result
    return red, green, blue


def _by_tap(index: Tensor, weights: Tensor) -> list[list[_Taps]]:
    # For every view the taps that weigh anything: the third, say, only where the crop is shrunk.
    views, size, count = index.shape
    lines = index.transpose(1, 2).reshape(-1, size).unbind()
    factors = weights.transpose(1, 2).reshape(-1, size, 1).unbind()
    used = weights.any(1).flatten().tolist()
    taps = list(zip(lines, factors, used, strict=True))
    return [
        [(line, factor) for line, factor, weighs in taps[start : start + count] if weighs]
        for start in range(0, views * count, count)
    ]


def _weigh_lines(lines: Tensor, taps: list[_Taps]) -> Tensor:
    # Of (..., lines, length); index (size,) and weights (size, 1) of every tap.
    shape = (*lines.shape[:-2], len(taps[0][0]), lines.shape[-1])
    total = torch.full(shape, 1 << (_WEIGHT_BITS - 1), dtype=torch.int32)
    for index, weights in taps:
        total.addcmul_(lines.index_select(-2, index).to(torch.int32), weights)
    return total.bitwise_right_shift_(_WEIGHT_BITS).to(torch.uint8)


def _filter(
    start: Tensor, length: Tensor, extent: Tensor, stored: int, positions: Tensor
) -> tuple[Tensor, Tensor]:
    # (V, size, taps) indices and weights. All lengths are in units of 1 / (2 size extent) of a
    # stored pixel, in which everything is an integer.
    size = positions.shape[0]
    window = (x[:, None, None] for x in _window(start, length, extent, stored))
    start, length, extent = (x[:, None, None] for x in (start, length, extent))
    half_pixel = size * extent
    centre = (2 * size * start + (2 * positions[:, None] + 1) * length) * stored
    reach = torch.maximum(2 * half_pixel, 2 * length * stored)
    first = (centre - reach - half_pixel) // (2 * half_pixel) + 1
    index = torch.cat([first + tap for tap in range(tap_count(stored, size))], dim=-1)
    weight = (reach - ((2 * index + 1) * half_pixel - centre).abs()).clamp(min=0)
    lowest, highest = window
    weight = torch.where((index >= lowest) & (index <= highest), weight, 0)
    total = weight.sum(-1, keepdim=True)
    weight = ((weight << _WEIGHT_BITS) + total // 2) // total
    return index.clamp(0, stored - 1), weight.to(torch.int32)


def _window(start: Tensor, length: Tensor, extent: Tensor, stored: int) -> tuple[Tensor, Tensor]:
    # The first and last stored pixel that a crop touches.
    return start * stored // extent, -(-(start + length) * stored // extent) - 1


def _weigh(plane: Tensor, axis: int, index: Tensor, weights: Tensor) -> Tensor:
    # The last dimension of index and weights counts taps; the others broadcast over the plane,
    # but for the axis that is resized.
    shape = list(plane.shape)
    shape[axis] = index.shape[axis]
    half = 1 << (_WEIGHT_BITS - 1)
    total = torch.full(shape, half, dtype=torch.int32, device=plane.device)
    for tap in range(index.shape[-1]):
        pixel = plane.gather(axis, index[..., tap].expand(shape))
        total.addcmul_(pixel.to(torch.int32), weights[..., tap])
    return (total >> _WEIGHT_BITS).to(torch.uint8)


def crop_affine(
    images: Tensor, parameters: Parameters, sizes: Tensor, matrix: Tensor, positions: Tensor
) -> tuple[Planes, Tensor]:
    """Crop, resize and map in one resampling, 0 outside the crop.

    The filter is that of ``crop``, centred where the map takes a pixel's centre. Images may be up
    to MAX_SHRINK times as large as the views.

    Args:
        images: (B, 3, H, W) uint8.
        parameters: of V = B M views.
        sizes: (V, 2) int64, the original height and width.
        matrix: (V, 6) float64, from the view to the resized crop, see ``geometry``.
        positions: int32 arange(size).

    Returns:
        Three (V, size, size) planes of uint8, and where they show the crop.
    """
    batch, _, height, width = images.shape
    size = positions.shape[0]
    rows, columns = sizes.unbind(-1)
    top, zoom_y = _scaled(parameters.top, parameters.height, rows, height, size)
    left, zoom_x = _scaled(parameters.left, parameters.width, columns, width, size)
    a, b, c, d, e, f = matrix.unbind(-1)
    x_row = (zoom_x * a, zoom_x * b, zoom_x * c + left)
    y_row = (zoom_y * d, zoom_y * e, zoom_y * f + top)
    x, y = coordinates(torch.stack([*x_row, *y_row], dim=-1), positions)
    x_window = _window(parameters.left, parameters.width, columns, width)
    y_window = _window(parameters.top, parameters.height, rows, height)
    across = _taps(x, zoom_x, x_window, width, size)
    down = _taps(y, zoom_y, y_window, height, size)
    inside = _between(x, left, zoom_x * size) & _between(y, top, zoom_y * size)

    def sample(plane: Tensor) -> Tensor:
        flat = plane.flatten(1)
        column = torch.zeros_like(across.total)
        for row, row_weight in down.taps:
            line = torch.zeros_like(column)
            for pixel, weight in across.taps:
                index = (row * width + pixel).to(torch.int64).view(batch, -1)
                line += flat.gather(1, index).view_as(line).to(torch.float32).mul_(weight)
            column += _ratio(line, across.total).mul_(row_weight)
        return torch.where(inside, _ratio(column, down.total), 0).to(torch.uint8)

    red, green, blue = (sample(plane) for plane in images.unbind(1))
    return (red, green, blue), inside


class _Axis(NamedTuple):
    # Index (int32) and weight (an integer in float32) of every tap along one axis, each
    # (V, size, size), and the sum of the weights.
    taps: list[tuple[Tensor, Tensor]]
    total: Tensor


def _taps(
    centre: Tensor, zoom: Tensor, window: tuple[Tensor, Tensor], stored: int, size: int
) -> _Axis:
    # The weights sum to about zoom^2 2^bits; twice that times a level must stay below 2^20.
    bits = 10 - math.ceil(2 * math.log2(max(1, stored / size)))
    half = 1 << (bits - 1)
    reach = per_view(_fixed(zoom.clamp(min=1), bits))
    lowest, highest = (per_view(pixel.to(torch.int32)) for pixel in window)
    centre = centre >> (PLACES - bits)
    first = ((centre - reach - half) >> bits) + 1
    taps = []
    total = torch.zeros_like(centre, dtype=torch.float32)
    count = tap_count(stored, size)
    for tap in range(count):
        index = first + tap
        pixel = torch.minimum(torch.maximum(index, lowest), highest)
        weight = (reach - ((index << bits) + half - centre).abs()).clamp(min=0)
        if count > 2:  # of two, the one beyond the edge may as well repeat the one within
            weight = torch.where(pixel == index, weight, 0)
        taps.append((pixel, weight.to(torch.float32)))
        total = total + taps[-1][1]
    return _Axis(taps, total.clamp(min=1))  # of a pixel beyond the crop, which stays black


def _scaled(
    start: Tensor, length: Tensor, extent: Tensor, stored: int, size: int
) -> tuple[Tensor, Tensor]:
    # The crop's start in stored pixels, and how many of them a pixel of the view spans.
    pixel = stored / extent.to(torch.float64)
    return start * pixel, length * pixel / size


def _between(coordinate: Tensor, start: Tensor, length: Tensor) -> Tensor:
    low, high = (per_view(_fixed(x, PLACES)) for x in (start, start + length))
    return (coordinate >= low) & (coordinate < high)


def _ratio(weighted: Tensor, total: Tensor) -> Tensor:
    return divide((2 * weighted).add_(total), 2 * total)


def _fixed(value: Tensor, bits: int) -> Tensor:
    return (value * 2.0**bits + 0.5).floor().to(torch.int32)
