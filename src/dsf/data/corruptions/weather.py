"""Weather: snow, frost, fog."""

import torch
from torch import Tensor

from dsf.data.corruptions.constants import LARGEST_CIFAR, Constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.filters import motion_blur, separable, zoom_matrix
from dsf.data.corruptions.levels import as_levels, on_device, rounded, truncated
from dsf.data.corruptions.textures import frost_textures

_LUMA = (0.299, 0.587, 0.114)


def snow(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Flakes blurred along an angle in [-135, -45] degrees, over a whiter image.

    The flakes are normal noise of ``mean`` and ``deviation``, its middle enlarged by ``zoom``,
    without what lies below ``threshold``; they fall twice, the second time turned by half a turn.
    The image keeps ``share`` of itself, the rest is the lighter of itself and 1.5 grey + 0.5.
    """
    mean, deviation, zoom, threshold, radius, sigma, share = constants
    height, width = images.shape[-2:]
    flakes = mean + deviation * draws.normal(1, height, width)
    angle = draws.uniform(low=-135, high=-45)
    flakes = separable(flakes, zoom_matrix(height, zoom), zoom_matrix(width, zoom))
    flakes = truncated(255 * flakes.masked_fill(flakes < threshold, 0))
    fallen = as_levels(rounded(motion_blur(flakes, radius, sigma, angle)))
    levels = as_levels(images)
    weights = on_device(torch.tensor(_LUMA, dtype=levels.dtype), levels)
    grey = (levels * weights[:, None, None]).sum(dim=1, keepdim=True)
    whiter = share * levels + (1 - share) * torch.maximum(levels, 1.5 * grey + 127.5)
    return truncated(whiter + fallen + fallen.flip(-2, -1))


def frost(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """``keep`` of the image plus ``add`` of a random part of one of five textures of frost.

    Textures are reduced to a fifth for small images, and no further than to be larger than them.
    """
    keep, add = constants
    height, width = images.shape[-2:]
    scale = 0.2 if max(height, width) <= LARGEST_CIFAR else 1.0
    sheet, sizes = (on_device(x, images) for x in frost_textures(scale, height, width))
    chance = draws.uniform(3)
    number = (chance[:, 0] * len(sheet)).to(torch.int64)
    room = sizes[number] - on_device(torch.tensor([height, width]), images)
    start = (chance[:, 1:] * room).to(torch.int64)
    rows, columns = (
        start[:, i, None] + torch.arange(side, device=images.device)
        for i, side in enumerate((height, width))
    )
    parts = sheet[number[:, None, None], rows[:, :, None], columns[:, None]]
    return truncated(keep * as_levels(images) + add * as_levels(parts.permute(0, 3, 1, 2)))


def fog(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """A plasma fractal added with ``strength``, then scaled so that white stays in range."""
    strength, decay = constants
    height, width = images.shape[-2:]
    side = 1 << (max(height, width, 2) - 1).bit_length()
    cloud = plasma(draws.uniform(side, side, low=-1, high=1), decay)[:, :height, :width]
    levels = as_levels(images)
    brightest = levels.amax(dim=(1, 2, 3), keepdim=True)
    foggy = levels + 255 * strength * cloud[:, None]
    return truncated(foggy * brightest / (brightest + 255 * strength))


def plasma(noise: Tensor, decay: float) -> Tensor:
    """The diamond-square algorithm on a torus, as (N, S, S) heights in [0, 1].

    Every height but the first is the mean of four around it plus its ``noise``, in [-1, 1],
    times an amplitude that begins at 100^2 and falls by ``decay``^2 from one scale to the next.
    """
    heights = torch.zeros_like(noise)
    step, amplitude = noise.shape[-1], 100.0**2
    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        middle = (slice(None), slice(half, None, step), slice(half, None, step))
        heights[middle] = (pairs + pairs.roll(-1, 2)) / 4 + amplitude * noise[middle]
        centres = heights[middle]
        for axis, place in (
            (1, (slice(None), slice(0, None, step), slice(half, None, step))),
            (2, (slice(None), slice(half, None, step), slice(0, None, step))),
        ):
            around = centres + centres.roll(1, axis) + corners + corners.roll(-1, 3 - axis)
            heights[place] = around / 4 + amplitude * noise[place]
        step, amplitude = half, amplitude / decay**2
    heights = heights - heights.amin(dim=(1, 2), keepdim=True)
    return heights / heights.amax(dim=(1, 2), keepdim=True)
