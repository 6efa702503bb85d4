"""How far a long piece of work is: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_SECONDS = 10.0


class Progress:
    """Says nothing; the base of those that do."""

    def say(self, text: str) -> None:
        """Tell something that happened."""

    @contextmanager
    def task(self, name: str, total: int, unit: str = "images") -> Iterator[Callable[[int], None]]:
        """Follow a piece of work of ``total`` units; gives what to call with each number done."""
        yield lambda count: None


class Lines(Progress):
    """A plain line at the start, at the end, and every ten seconds: for logs."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def say(self, text: str) -> None:
        """Print it."""
        print(text, file=self.stream, flush=True)

    @contextmanager
    def task(self, name: str, total: int, unit: str = "images") -> Iterator[Callable[[int], None]]:
        """Follow a piece of work."""
        done, said = 0, time.monotonic()

        def say() -> None:
            self.say(f"{name}: {done:,} of {total:,} {unit}")

        def advance(count: int) -> None:
            nonlocal done, said
            done += count
            if time.monotonic() - said >= _SECONDS and done < total:
                said = time.monotonic()
                say()

        say()
        yield advance
        say()


class Bar(Lines):
    """A bar with the time that is left."""

    @contextmanager
    def task(self, name: str, total: int, unit: str = "images") -> Iterator[Callable[[int], None]]:
        """Follow a piece of work."""
        from rich import progress
        from rich.console import Console

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn(unit),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(*columns, console=Console(file=self.stream)) as bar:
            task = bar.add_task(name, total=total)
            yield lambda count: bar.advance(task, count)


def on_stderr() -> Progress:
    """A bar if the standard error is a terminal, else lines."""
    return Bar(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
