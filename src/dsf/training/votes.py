"""What processes decide together while they train, without waiting for each other at each step."""

import time

import torch

from dsf import distributed

SECONDS = 5.0
"""Between two votes, about: torchrun kills 30 s after it has told a process to stop."""


class Votes:
    """Votes of all processes, at steps that are the same in all though their clocks differ.

    How many steps take :data:`SECONDS` is measured, and decided with each vote for the next; from
    one vote to the next it doubles at most, since the first steps may be those that compile.

    Args:
        step: the training begins after it.
        device: of the process.
    """

    def __init__(self, step: int, device: torch.device) -> None:
        self._device = device
        self._next = step + 1
        self._last, self._time = step, time.perf_counter()

    def due(self, step: int) -> bool:
        """Whether to vote after this step."""
        return step >= self._next

    def vote(self, step: int, *flags: bool) -> list[bool]:
        """For each flag whether any process has it set; waits for the device and for all."""
        steps, seconds = step - self._last, time.perf_counter() - self._time
        fit = min(int(SECONDS * steps / max(seconds, 1e-9)), 2 * steps)
        *answers, fit = distributed.largest(*flags, fit, device=self._device)
        self._next = step + max(fit, 1)
        self._last, self._time = step, time.perf_counter()
        return [bool(answer) for answer in answers]
