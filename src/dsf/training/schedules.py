"""The learning rate as a function of the step: nothing that a checkpoint must remember."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Schedule:
    """Warm-up, then a half cosine or a constant.

    In the warm-up of w steps, step t has the rate peak (t + 1) / w. After it, with s steps in all,
    the cosine has peak (f + (1 - f) (1 + cos(pi (t - w) / (s - w))) / 2).

    Args:
        peak: the highest rate.
        steps: of the whole training.
        steps_per_epoch: of which an epoch has so many.
        warmup: steps of the warm-up.
        final: f, the end as a part of the peak.
        name: ``"cosine"`` or ``"constant"``.
        per: ``"epoch"`` keeps the rate of an epoch's first step, but in the warm-up of its last.

    Example:
        >>> schedule = Schedule(peak=1.0, steps=100, steps_per_epoch=10, warmup=20)
        >>> [round(schedule(step), 3) for step in (0, 19, 20, 60, 99)]
        [0.05, 1.0, 1.0, 0.5, 0.0]
    """

    peak: float
    steps: int
    steps_per_epoch: int
    warmup: int = 0
    final: float = 0.0
    name: Literal["cosine", "constant"] = "cosine"
    per: Literal["step", "epoch"] = "step"

    def __call__(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        stride = 1 if self.per == "step" else self.steps_per_epoch
        start = step - step % stride
        if start < self.warmup:
            return self.peak * min(1.0, (start + stride) / self.warmup)
        if self.name == "constant":
            return self.peak
        done = (start - self.warmup) / max(1, self.steps - self.warmup)
        cosine = (1 + math.cos(math.pi * min(1.0, done))) / 2
        return self.peak * (self.final + (1 - self.final) * cosine)
