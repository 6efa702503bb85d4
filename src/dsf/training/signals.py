"""SIGTERM and SIGINT: asked to stop, a run finishes its step, saves and leaves."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupted(Exception):  # noqa: N818 - no error: the run did as it was told
    """A run was asked to stop, and has saved its state."""


class Signals:
    """Notes that the process was asked to stop; a second SIGINT stops it at once."""

    def __init__(self) -> None:
        self.received: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # Elsewhere than in the main thread Python allows no handlers: then nobody asks.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received:
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name
