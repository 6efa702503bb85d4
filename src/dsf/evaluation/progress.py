"""How far a long evaluation is."""

import time
from collections.abc import Callable
from datetime import timedelta


class Progress:
    """Tells where a work of equal steps is and how long it will still take, now and then.

    Args:
        say: told it.
        steps: of the whole work.
        seconds: from one line to the next.

    Example:
        >>> progress = Progress(print, steps=4, seconds=0.0)
        >>> progress.step("finetune: step 1 of 4")
        finetune: step 1 of 4, about 0:00:00 left
    """

    def __init__(self, say: Callable[[str], None], steps: int, seconds: float = 10.0) -> None:
        self.say, self.steps, self.seconds = say, steps, seconds
        self._done = 0
        self._began = self._said = time.monotonic()

    def step(self, what: str) -> None:
        """Count a step; ``what`` is said of it if it is time for a line."""
        self._done += 1
        now = time.monotonic()
        if now - self._said < self.seconds or self._done >= self.steps:
            return
        self._said = now
        left = (now - self._began) / self._done * (self.steps - self._done)
        self.say(f"{what}, about {timedelta(seconds=round(left))} left")
