"""Noise: Gaussian, shot, impulse, speckle."""

import math
from functools import cache

import torch
from torch import Tensor

from dsf.data.corruptions.constants import Constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.levels import as_levels, on_device, truncated


def gaussian_noise(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """x + sigma z, with z standard normal for each pixel and channel."""
    (sigma,) = constants
    return truncated(as_levels(images) + 255 * sigma * draws.normal(*images.shape[1:]))


def speckle_noise(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """x + x sigma z, with z standard normal for each pixel and channel."""
    (sigma,) = constants
    return truncated(as_levels(images) * (1 + sigma * draws.normal(*images.shape[1:])))


def shot_noise(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Poisson(rate x) / rate for each pixel and channel.

    The counts are those of the inverse distribution function, from one table for the 256 levels.
    """
    (rate,) = constants
    table = on_device(_poisson(rate), images)
    places = as_levels(images) + draws.uniform(*images.shape[1:])
    counts = torch.searchsorted(table.flatten(), places, right=True)
    counts = (counts - images.to(torch.int64) * table.shape[1]).clamp_(max=table.shape[1] - 1)
    return truncated(counts * (255 / rate))


@cache
def _poisson(rate: float) -> Tensor:
    # (256, K): the level plus the chance of at most k counts, so that all rows are one sorted list.
    most = math.ceil(rate + 10 * math.sqrt(rate) + 20)
    level = torch.arange(256, dtype=torch.float64)[:, None]
    counts = torch.arange(most, dtype=torch.float64)
    mean = level * (rate / 255)
    chance = (torch.xlogy(counts, mean) - mean - torch.lgamma(counts + 1)).exp()
    return level + chance.cumsum(1).clamp_(max=1)


def impulse_noise(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Each value of a pixel becomes 0 or 255 with probability amount / 2 each."""
    (amount,) = constants
    chance = draws.uniform(*images.shape[1:])
    pepper = images.masked_fill(chance < amount, 0)
    return pepper.masked_fill_(chance < amount / 2, 255)
