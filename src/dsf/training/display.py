"""How the training goes: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any, TextIO

from dsf.training.loop import Callback
from dsf.training.metrics import Line

_SECONDS = 10.0


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
        self._start, self._began = step, time.monotonic()

    def line(self, line: Line) -> None:
        """Take in a line of metrics."""
        self.step = line["step"]
        if line["kind"] == "step":
            self._numbers = line
        elif line["kind"] == "knn":
            self._knn = line["backbone"]

    def numbers(self) -> str:
        """The latest of everything."""
        line = self._numbers
        parts = [f"epoch {min(self.epochs, int(line.get('epoch', 0)) + 1)}/{self.epochs}"]
        for name, label in (("loss", "loss"), ("margin", "margin"), ("kappa_mean", "kappa")):
            if name in line:
                parts.append(f"{label} {line[name]:.3f}")
        if "images_per_s" in line:
            parts.append(f"{line['images_per_s']:,.0f} images/s")
        if self._knn is not None:
            parts.append(f"kNN {100 * self._knn:.1f} %")
        return "  ".join(parts)

    def left(self) -> str:
        """The time that is left, judged by the steps of this process."""
        done = self.step - self._start
        if not done:
            return "-:--"
        seconds = (time.monotonic() - self._began) / done * (self.steps - self.step)
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
        if due or line["kind"] == "knn":
            self._said = now
            self.say(f"step {self.step}/{self.steps}  {self.numbers()}  {self.left()} left")

    def say(self, text: str) -> None:
        """Print it."""
        print(text, file=self.stream, flush=True)


class Bar(Display):
    """A bar that stays at the bottom."""

    def __init__(self, epochs: int, steps: int, step: int, stream: TextIO) -> None:
        super().__init__(epochs, steps, step, stream)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[left]} left"),
            console=Console(file=stream),
        )
        self._task = self._bar.add_task("starting", total=steps, completed=step, left="-:--")
        self._bar.start()

    def line(self, line: Line) -> None:
        """Move on."""
        super().line(line)
        self._bar.update(
            self._task, completed=self.step, description=self.numbers(), left=self.left()
        )

    def say(self, text: str) -> None:
        """Print it above the bar."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


def display(epochs: int, steps: int, step: int) -> Display:
    """A bar if the standard error is a terminal, else lines."""
    kind = Bar if sys.stderr.isatty() else Lines
    return kind(epochs, steps, step, sys.stderr)
