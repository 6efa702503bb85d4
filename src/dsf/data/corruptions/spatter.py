"""Spatter: drops of water, or of mud."""

import torch
from torch import Tensor

from dsf.data.corruptions.constants import Constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.edges import canny, distance
from dsf.data.corruptions.filters import correlate, gaussian
from dsf.data.corruptions.levels import as_levels, on_device, rounded, truncated

_WATER = (175, 238, 238)
_MUD = (63, 42, 20)
_FAR = 20  # pixels from an edge; beyond, water is of one thickness
_RELIEF = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))


def spatter(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Drops where blurred noise exceeds a threshold: of water, added, or of mud, which covers.

    The noise is normal of ``mean`` and ``deviation``, blurred by ``sigma``. Of water
    ``strength`` says how much is added at the brightest place; of mud by how much the drops are
    blurred, of which what is at least 0.8 remains.

    Where no drop falls the image stays; the published sets divide 0 by 0 there.
    """
    mean, deviation, sigma, threshold, strength, mud = constants
    height, width = images.shape[-2:]
    liquid = gaussian(mean + deviation * draws.normal(1, height, width), sigma)
    levels = as_levels(images)
    if mud:
        cover = gaussian((liquid > threshold).to(torch.float64), strength)
        cover = cover.masked_fill(cover < 0.8, 0)
        return truncated(levels * (1 - cover) + _colour(_MUD, levels) * cover)
    # Above 1 the published layer starts from 0 again, as bytes do.
    liquid = (255 * liquid.masked_fill(liquid < threshold, 0)).floor().remainder(256)
    shine = liquid * water_relief(liquid)
    brightest = shine.amax(dim=(-2, -1), keepdim=True).clamp_(min=1)
    return truncated(levels + strength * shine / brightest * _colour(_WATER, levels))


def water_relief(liquid: Tensor) -> Tensor:
    """How light (N, 1, H, W) drops are, as bytes in float64: brighter at lower right edges.

    The distance from the nearest edge, blurred, equalised, and embossed by a kernel.
    """
    height, width = liquid.shape[-2:]
    box = torch.full((3, 3), 1.0, dtype=torch.float64)
    thickness = distance(canny(liquid[:, 0], low=50, high=150), _FAR)
    depth = (correlate(thickness[:, None], box) / 9 + 2.0**-20).floor()
    depth = _equalised(depth.to(torch.int64).view(len(liquid), -1), _FAR + 1)
    depth = depth.view(len(liquid), 1, height, width).to(torch.float64)
    relief = correlate(depth, torch.tensor(_RELIEF, dtype=torch.float64)).clamp_(0, 255)
    return as_levels(rounded(correlate(relief, box) / 9))


def _equalised(values: Tensor, kinds: int) -> Tensor:
    """(N, P) integers below ``kinds``, spread so that each of 256 levels is about as frequent."""
    counts = torch.stack([(values == kind).sum(1) for kind in range(kinds)], dim=1)
    lowest = (counts > 0).to(torch.int64).argmax(1, keepdim=True)
    first = counts.gather(1, lowest)
    rest = values.shape[1] - first
    table = ((counts.cumsum(1) - first).clamp_(min=0) * (255 / rest.clamp(min=1))).round()
    # An image of one value keeps it.
    table = torch.where(rest > 0, table, lowest.to(table.dtype))
    return table.gather(1, values)


def _colour(rgb: tuple[int, int, int], levels: Tensor) -> Tensor:
    return on_device(torch.tensor(rgb, dtype=levels.dtype), levels)[:, None, None]
