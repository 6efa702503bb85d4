"""Edges of bytes and the distance from them, as OpenCV defines both."""

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

# Lengths of steps to the side, across and as a knight's: OpenCV's for L2, in 1 / 10000 of a pixel.
_SIDE, _ACROSS, _KNIGHT = 10_000, 14_000, 21_969
_TANGENT = 13573  # of 22.5 degrees, times 2^15


def canny(bytes_: Tensor, low: float, high: float) -> Tensor:
    """Canny's edges of (N, H, W) bytes in a floating type, as bool.

    Sobel's gradients with the border repeated, the sum of their absolute values as strength, the
    strongest pixel across an edge, and hysteresis: what exceeds ``low`` counts if a chain of such
    pixels leads to one above ``high``. Chains are followed for twice the longer side.
    """
    wide = pad(bytes_[:, None], (1, 1, 1, 1), mode="replicate")[:, 0].to(torch.int32)
    rows = wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]
    columns = wide[..., :-2] + 2 * wide[..., 1:-1] + wide[..., 2:]
    x, y = rows[..., 2:] - rows[..., :-2], columns[:, 2:] - columns[:, :-2]
    strength = x.abs() + y.abs()
    around = pad(strength, (1, 1, 1, 1))
    height, width = strength.shape[-2:]

    def neighbour(down: int, right: int) -> Tensor:
        return around[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width]

    flat, steep = x.abs().to(torch.int64) * _TANGENT, y.abs().to(torch.int64) << 15
    horizontal = steep < flat
    vertical = steep > flat + (x.abs().to(torch.int64) << 16)
    falling = (x < 0) == (y < 0)
    # Of two equal neighbours the left or upper one is the edge.
    sides = (
        (horizontal, (strength > neighbour(0, -1)) & (strength >= neighbour(0, 1))),
        (vertical, (strength > neighbour(-1, 0)) & (strength >= neighbour(1, 0))),
        (falling, (strength > neighbour(-1, -1)) & (strength > neighbour(1, 1))),
    )
    largest = (strength > neighbour(-1, 1)) & (strength > neighbour(1, -1))
    for direction, stands_out in reversed(sides):
        largest = torch.where(direction, stands_out, largest)
    candidate = ((strength > low) & largest).to(torch.float32)
    edge = candidate * (strength > high)
    for _ in range(2 * max(height, width)):
        grown = candidate * max_pool2d(edge[:, None], 3, stride=1, padding=1)[:, 0]
        if edge.device.type == "cpu" and torch.equal(grown, edge):
            break  # a GPU would have to be waited for, which costs more than to go on
        edge = grown
    return edge > 0


def distance(edge: Tensor, most: float) -> Tensor:
    """(N, H, W) float64: how far the nearest edge is, at most ``most``.

    The length of the shortest way in steps to the side (1), across (1.4) and as a knight's
    (2.1969), by one sweep down and one up. Within a row the way along it is a running minimum.
    """
    height, width = edge.shape[-2:]
    far = int(most * _SIDE)
    # Two cells beyond the border, which are far from everything.
    field = torch.where(edge, 0, far).to(torch.int32)
    field = pad(field, (2, 2, 2, 2), value=4 * far)
    along = _SIDE * torch.arange(width, dtype=torch.int32, device=edge.device)
    middle = slice(2, width + 2)
    for direction in (1, -1):
        rows = range(2, height + 2) if direction == 1 else range(height + 1, 1, -1)
        for row in rows:
            last, before = field[:, row - direction], field[:, row - 2 * direction]
            best = torch.minimum(field[:, row, middle], last[:, middle] + _SIDE)
            sideways = torch.minimum(last[:, 1 : width + 1], last[:, 3 : width + 3]) + _ACROSS
            best = torch.minimum(best, sideways)
            knight = torch.minimum(last[:, :width], last[:, 4:])
            steep = torch.minimum(before[:, 1 : width + 1], before[:, 3 : width + 3])
            best = torch.minimum(best, torch.minimum(knight, steep) + _KNIGHT)
            if direction == 1:
                best = (best - along).cummin(1).values + along
            else:
                best = ((best.flip(1) - along).cummin(1).values + along).flip(1)
            field[:, row, middle] = best
    return field[:, 2:-2, middle].to(torch.float64) / _SIDE
