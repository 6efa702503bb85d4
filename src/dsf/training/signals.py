"""SIGTERM and SIGINT: asked to stop, a run finishes its step, saves and leaves."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def stopped_at_once(what: str) -> Iterator[None]:
    """Within it a signal raises ``Interrupted`` where it is: for work that keeps its own results.

    Args:
        what: is stopped, for the message.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        raise Interrupted(f"stopped by {name} during {what}; what is complete of it is kept")

    if threading.current_thread() is not threading.main_thread():
        yield  # Python allows no handlers here: nobody asks
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
