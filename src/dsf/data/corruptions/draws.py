"""Random numbers of corruptions: functions of seed, corruption, severity and sample."""

import math

import torch
from torch import Tensor

from dsf.random import philox

# The last word of the counter; the views in training have their epoch there.
_STREAM = 0xC0440000


class Draws:
    """What chance decides about a batch of images. Each call draws anew, in the order of the calls.

    float64, so that the devices' logarithms and cosines agree to far less than a level.

    Args:
        seed: in [0, 2^64).
        corruption: the number of the type.
        severity: 1 to 5.
        samples: (N,) int64, which numbers belong to which image.
    """

    def __init__(self, seed: int, corruption: int, severity: int, samples: Tensor) -> None:
        self.seed, self.samples = seed, samples
        self._stream = _STREAM + 8 * corruption + severity
        self._calls = 0

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """(N, *shape) between low and high, the middles of 2^32 equal steps."""
        return low + (high - low) * self._unit(*shape)

    def normal(self, *shape: int) -> Tensor:
        """(N, *shape) of mean 0 and deviation 1, by Box and Muller."""
        count = math.prod(shape)
        radius, angle = self._unit(2, (count + 1) // 2).unbind(1)
        radius = (-2 * radius.log()).sqrt_()
        angle = angle * (2 * math.pi)
        pairs = torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)
        return pairs[:, :count].reshape(-1, *shape)

    def _unit(self, *shape: int) -> Tensor:
        count = math.prod(shape)
        blocks = torch.arange((count + 3) // 4, device=self.samples.device)
        call, stream = (blocks.new_full((), number) for number in (self._calls, self._stream))
        self._calls += 1
        words = philox(self.seed, (blocks, self.samples[:, None], call, stream)).flatten(1)
        return (words[:, :count].to(torch.float64) + 0.5).mul_(2.0**-32).reshape(-1, *shape)
