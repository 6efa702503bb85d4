"""JPEG compression: everything that loses something, as libjpeg does it."""

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from dsf.data.corruptions.constants import Constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.levels import as_levels, on_device

# The quantisation tables that the standard suggests (ITU-T T.81, annex K), row by row.
_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8 for _ in range(4)),
)
_BITS = 16  # of the weights of the change of colours
_COSINE_BITS = 13
# With the digits that libjpeg rounds them to first.
_TO_YCC = ((0.299, 0.587, 0.114), (-0.16874, -0.33126, 0.5), (0.5, -0.41869, -0.08131))


def jpeg_compression(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Written as a JPEG of a quality and read again: baseline, chroma at half the resolution.

    Conversion to YCbCr, averaging of chroma, cosine transform of blocks of 8 x 8, quantisation
    and all of it backwards, with the integers that libjpeg has at every step, so that the bytes
    are those of Pillow. Nothing is encoded, since that loses nothing.
    """
    (quality,) = constants
    height, width = images.shape[-2:]
    bottom, right = -height % 16, -width % 16
    levels = pad(as_levels(images), (0, right, 0, bottom), mode="replicate")
    luma, blue, red = _to_ycc(levels).unbind(1)
    chroma = _halved(torch.stack([blue, red], dim=1))
    luma = _coarse(luma[:, None], _table(_LUMINANCE, quality))
    chroma = _coarse(chroma, _table(_CHROMINANCE, quality))
    chroma = _doubled(chroma[..., : (height + 1) // 2, : (width + 1) // 2])
    return _to_rgb(luma[..., :height, :width], chroma[..., :height, :width]).to(torch.uint8)


def _fixed(weight: float) -> int:
    return int(weight * (1 << _BITS) + 0.5) if weight >= 0 else -_fixed(-weight)


def _shifted(total: Tensor) -> Tensor:
    return (total * 2.0**-_BITS).floor_()


def _to_ycc(levels: Tensor) -> Tensor:
    half = 1 << (_BITS - 1)
    planes = []
    for channel, weights in enumerate(_TO_YCC):
        fixed = on_device(torch.tensor([_fixed(w) for w in weights]), levels)
        total = (levels * fixed[:, None, None]).sum(dim=1)
        planes.append(_shifted(total + (half if channel == 0 else (128 << _BITS) + half - 1)))
    return torch.stack(planes, dim=1)


def _to_rgb(luma: Tensor, chroma: Tensor) -> Tensor:
    blue, red = (chroma - 128).split(1, dim=1)
    half = 1 << (_BITS - 1)
    changes = (
        _fixed(1.402) * red,
        -_fixed(0.34414) * blue - _fixed(0.71414) * red,
        _fixed(1.772) * blue,
    )
    rgb = torch.cat([luma + _shifted(change + half) for change in changes], dim=1)
    return rgb.clamp_(0, 255)


def _halved(planes: Tensor) -> Tensor:
    # Means of four; halves go down in even columns and up in odd ones.
    total = planes[..., ::2, :] + planes[..., 1::2, :]
    total = total[..., ::2] + total[..., 1::2]
    bias = 1 + torch.arange(total.shape[-1], device=planes.device) % 2
    return ((total + bias) * 0.25).floor_()


def _doubled(planes: Tensor) -> Tensor:
    # Each pixel lies a quarter of the way to a neighbour, in both directions.
    near = planes.repeat_interleave(2, dim=-2)
    wider = pad(planes, (1, 1, 1, 1), mode="replicate")
    far = torch.stack([wider[..., :-2, :], wider[..., 2:, :]], dim=-2).flatten(-3, -2)
    rows = 3 * near + far[..., 1:-1]
    wider = pad(rows, (1, 1, 0, 0), mode="replicate")
    left = 3 * rows + wider[..., :-2] + 8
    right = 3 * rows + wider[..., 2:] + 7
    return (torch.stack([left, right], dim=-1).flatten(-2) * 0.0625).floor_()


def _coarse(planes: Tensor, table: Tensor) -> Tensor:
    """Blocks transformed, divided by the table, rounded, and back again."""
    cosine, table = on_device(_cosine(), planes), on_device(table, planes)
    blocks = (planes - 128).unflatten(-2, (-1, 8)).unflatten(-1, (-1, 8)).transpose(-3, -2)
    # Rows first, then columns; two bits of fraction in between, and a scale of 8 from both.
    along = _descaled(blocks @ cosine.T, _COSINE_BITS - 2)
    frequencies = _descaled(cosine @ along, _COSINE_BITS + 2)
    quantised = frequencies.sign() * (frequencies.abs() / (8 * table) + 0.5).floor_()
    down = _descaled(cosine.T @ (quantised * table), _COSINE_BITS - 2)
    blocks = _descaled(down @ cosine, _COSINE_BITS + 5)
    return (blocks.transpose(-3, -2).flatten(-4, -3).flatten(-2) + 128).clamp_(0, 255)


def _descaled(values: Tensor, bits: int) -> Tensor:
    return (values * 2.0**-bits + 0.5).floor_()


@cache
def _cosine() -> Tensor:
    """(8, 8), a frequency a row: sqrt(2) cos(pi / 16 k (2 n + 1)), the first row 1, in integers.

    The odd frequencies are sums of nine products in the algorithm of Loeffler, Ligtenberg and
    Moschytz (1989); it is these factors that libjpeg rounds, not the sums.
    """
    c = [math.sqrt(2) * math.cos(math.pi / 16 * k) for k in range(8)]

    def factor(value: float) -> int:
        return round(value * (1 << _COSINE_BITS))

    # Frequencies 7, 5, 3, 1 against the differences of the pixels 3, 2, 1, 0 and their mirrors.
    odd = torch.full((4, 4), factor(c[3]))
    pairs = {(0, 3): c[3] - c[7], (1, 2): c[1] + c[3], (0, 2): c[3] + c[5], (1, 3): c[3] - c[5]}
    for pair, value in pairs.items():
        for row in pair:
            odd[row, list(pair)] -= factor(value)
    c1, c3, c5, c7 = c[1::2]
    own = (-c1 + c3 + c5 - c7, c1 + c3 - c5 + c7, c1 + c3 + c5 - c7, c1 + c3 - c5 - c7)
    odd += torch.diag(torch.tensor([factor(value) for value in own]))

    shared, less, more = (factor(value) for value in (c[6], c[2] - c[6], c[2] + c[6]))
    one = factor(1)
    half = torch.zeros(8, 4, dtype=torch.int64)
    half[0] = one
    half[4] = torch.tensor([one, -one, -one, one])
    half[2] = torch.tensor([shared + less, shared, -shared, -shared - less])
    half[6] = torch.tensor([shared, shared - more, more - shared, -shared])
    half[1::2] = odd.flip(0, 1)
    sign = torch.tensor([1, -1] * 4)[:, None]
    return torch.cat([half, sign * half.flip(1)], dim=1).to(torch.float64)


def _table(table: tuple[tuple[int, ...], ...], quality: float) -> Tensor:
    scale = int(5000 / quality) if quality < 50 else int(200 - 2 * quality)
    scaled = (torch.tensor(table) * scale + 50) // 100
    return scaled.clamp_(1, 255).to(torch.float64)
