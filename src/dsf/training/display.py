"""How the training goes: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any, TextIO

from dsf.training.loop import Callback
from dsf.training.metrics import Line

_SECONDS = 10.0
_WIDE = 110  # columns that a bar and the numbers take


class Display(Callback):
    """What both displays know: where the run is and the latest numbers.

    Args:
        epochs: of the whole run.
        steps: of the whole run.
        step: that it starts from.
        stream: where to show it.
    """

    def __init__(self, epochs: int, steps: int, step: int, stream: TextIO) -> None:
        self.epochs, self.steps, self.step, self.stream = epochs, steps, step, stream
        self._numbers: dict[str, Any] = {}
        self._knn: float | None = None
        self._since: tuple[int, float] | None = None  # step and time of the first line

    def line(self, line: Line) -> None:
        """Take in a line of metrics."""
        self.step = line["step"]
        if line["kind"] == "step":
            self._numbers = line
            self._since = self._since or (self.step, time.monotonic())
        elif line["kind"] == "knn":
            self._knn = line["backbone"]

    def numbers(self) -> str:
        """The latest of everything."""
        line = self._numbers
        epoch = max(1, -(-self.step * self.epochs // self.steps))
        parts = [f"epoch {epoch}/{self.epochs}"]
        for name, label in (("loss", "loss"), ("margin", "margin"), ("kappa_mean", "kappa")):
            if name in line:
                parts.append(f"{label} {line[name]:.3f}")
        if "images_per_s" in line:
            parts.append(f"{line['images_per_s']:,.0f} images/s")
        return "  ".join(parts)

    def accuracy(self) -> str:
        """The latest of kNN; empty before the first."""
        return "" if self._knn is None else f"kNN {100 * self._knn:.1f} %"

    def left(self) -> str:
        """The time that is left, judged by the steps after the first line.

        Those before it include compilation, which may take longer than the whole training.
        """
        step, began = self._since or (self.step, 0.0)
        if step == self.step < self.steps:
            return "-:--"
        seconds = (time.monotonic() - began) / max(1, self.step - step) * (self.steps - self.step)
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Lines(Display):
    """A line every ten seconds, and one for every evaluation."""

    _said = 0.0

    def line(self, line: Line) -> None:
        """Print what is due."""
        super().line(line)
        now = time.monotonic()
        due = line["kind"] == "step" and (
            now - self._said >= _SECONDS or line["step"] == self.steps
        )
        where = f"step {self.step}/{self.steps}"
        if due:
            self._said = now
            self.say(f"{where}  {self.numbers()}  {self.left()} left")
        elif line["kind"] == "knn":
            self.say(f"{where}  {self.accuracy()}")

    def say(self, text: str) -> None:
        """Print it."""
        print(text, file=self.stream, flush=True)


class Bar(Display):
    """A bar that stays at the bottom, and at the end a line in its place."""

    def __init__(self, epochs: int, steps: int, step: int, stream: TextIO) -> None:
        super().__init__(epochs, steps, step, stream)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(file=stream)
        columns = [
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[left]} left"),
        ]
        bar = [BarColumn(bar_width=20)] if console.width >= _WIDE else []
        self._bar = Progress(*bar, *columns, console=console, transient=True)
        self._task = self._bar.add_task("starting", total=steps, completed=step, left="-:--")
        self._bar.start()

    def line(self, line: Line) -> None:
        """Move on."""
        super().line(line)
        shown = "  ".join(filter(None, [self.numbers(), self.accuracy()]))
        self._bar.update(self._task, completed=self.step, description=shown, left=self.left())

    def say(self, text: str) -> None:
        """Print it above the bar."""
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the latest numbers."""
        self._bar.stop()
        shown = "  ".join(filter(None, [self.numbers(), self.accuracy()]))
        self.say(f"step {self.step}/{self.steps}  {shown}")


def display(epochs: int, steps: int, step: int) -> Display:
    """A bar if the standard error is a terminal, else lines."""
    kind = Bar if sys.stderr.isatty() else Lines
    return kind(epochs, steps, step, sys.stderr)
