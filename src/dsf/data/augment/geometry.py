"""RandAugment's affine operations, and the nearest-neighbour sampling torchvision gives them.

A matrix (a, b, c, d, e, f) takes a point (x, y) of the output to (a x + b y + c, d x + e y + f) of
the input; pixel i covers [i, i + 1). Coordinates have 16 binary places, as PIL's do.
"""

import math

import torch
from torch import Tensor

from dsf.data.augment.fixed import fixed, per_view
from dsf.data.augment.parameters import OPERATIONS
from dsf.data.augment.planes import Planes
from dsf.data.augment.recipe import Recipe

PLACES = 16
_TABLE_PLACES = 32

Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: Matrix = (1, 0, 0, 0, 1, 0)


def affine_table(recipe: Recipe, size: int) -> Tensor:
    """The matrix of every operation, (14, 2, 6) int64; the second index is the sign's.

    It has integers with 32 binary places, which stay what they are when a module changes dtype.
    """
    strength = recipe.magnitude / (recipe.magnitude_bins - 1)
    rows = [[_matrix(name, sign * strength, size) for sign in (1, -1)] for name in OPERATIONS]
    return torch.tensor([[[fixed(x, _TABLE_PLACES) for x in m] for m in row] for row in rows])


def _matrix(operation: str, strength: float, size: int) -> Matrix:
    # Rounded first: of 331 pixels this may be a whole number, and fall just short of it.
    translation = int(round(150 / 331 * size * strength, 6))
    match operation:
        case "ShearX":
            return (1, 0.3 * strength, 0, 0, 1, 0)
        case "ShearY":
            return (1, 0, 0, 0.3 * strength, 1, 0)
        case "TranslateX":
            return (1, 0, -translation, 0, 1, 0)
        case "TranslateY":
            return (1, 0, 0, 0, 1, -translation)
        case "Rotate":
            return _rotation(30 * strength, size / 2)
    return _IDENTITY


def _rotation(degrees: float, centre: float) -> Matrix:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return (cos, -sin, centre * (1 - cos + sin), sin, cos, centre * (1 - cos - sin))


def look_up(table: Tensor, operation: Tensor, negative: Tensor) -> Tensor:
    """The (V, 6) matrices of one operation a view."""
    return table[operation, negative.to(torch.int64)]


def as_double(matrix: Tensor) -> Tensor:
    """Matrices of the table in float64, which holds them exactly."""
    return matrix.to(torch.float64) * 2.0**-_TABLE_PLACES


def coordinates(matrix: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Where the centres of output pixels lie in the input, (V, size, size) int32, PLACES binary.

    ``matrix`` is (V, 6) in float64, ``positions`` an int32 arange(size).
    """
    a, b, c, d, e, f = (per_view(x) for x in matrix.unbind(-1))
    across, down = positions[None, None, :], positions[None, :, None]
    x = _round(a) * across + (_round(b) * down + _round(c + 0.5 * (a + b)))
    y = _round(d) * across + (_round(e) * down + _round(f + 0.5 * (d + e)))
    return x, y


def nearest(planes: Planes, matrix: Tensor, positions: Tensor) -> Planes:
    """Sample the nearest pixel of (V, size, size) planes, 0 outside, as torchvision does."""
    size = positions.shape[0]
    x, y = coordinates(matrix, positions)
    column, row = x >> PLACES, y >> PLACES
    inside = (column >= 0) & (column < size) & (row >= 0) & (row < size)
    index = (row.clamp(0, size - 1) * size + column.clamp(0, size - 1)).to(torch.int64)
    red, green, blue = (
        torch.where(inside, plane.flatten(1).gather(1, index.flatten(1)).view_as(plane), 0)
        for plane in planes
    )
    return red, green, blue


def _round(value: Tensor) -> Tensor:
    return (value * 2.0**PLACES + 0.5).floor().to(torch.int32)


def compose(outer: Tensor, inner: Tensor) -> Tensor:
    """The map that applies ``inner`` first, (V, 6) in float64."""
    a, b, c, d, e, f = outer.unbind(-1)
    g, h, i, j, k, m = inner.unbind(-1)
    x_row = (a * g + b * j, a * h + b * k, a * i + b * m + c)
    y_row = (d * g + e * j, d * h + e * k, d * i + e * m + f)
    return torch.stack([*x_row, *y_row], dim=-1)


def flip_matrix(flip: Tensor, size: int) -> Tensor:
    """The map of a horizontal flip where it is chosen, (V, 6) in float64."""
    one = torch.ones_like(flip, dtype=torch.float64)
    zero = torch.zeros_like(one)
    sign, offset = torch.where(flip, -1.0, one), torch.where(flip, float(size), zero)
    return torch.stack([sign, zero, offset, zero, one, zero], dim=-1)


def flip(planes: Planes) -> Planes:
    """Mirror every row."""
    red, green, blue = (plane.flip(-1) for plane in planes)
    return red, green, blue
