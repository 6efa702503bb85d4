"""What a run folder holds, however complete."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dsf.experiments.page.chart import Point

Line = Mapping[str, Any]
_SHOWN = 5


@dataclass(frozen=True)
class Run:
    """The files of a run folder.

    Args:
        folder: where they lie.
        config: the settings.
        metrics: the lines of metrics.jsonl.
        results: the evaluations by name.
        environment: versions and hardware.
        problems: what is missing or cannot be read, in words.
    """

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Line, ...] = ()
    results: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def lines(self, kind: str) -> list[Line]:
        """The metrics of a kind: "step", "epoch" or "knn"."""
        return [line for line in self.metrics if line.get("kind") == kind]

    def series(self, kind: str, name: str, scale: float = 1.0) -> list[Point]:
        """A metric over epochs; what is no number becomes NaN, lines without it are left out."""
        return [
            (as_float(line.get("epoch")), scale * as_float(line[name]))
            for line in self.lines(kind)
            if name in line
        ]


def read_run(folder: Path | str) -> Run:
    """Read a run folder. What is missing or broken is said in ``problems``, and left out."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no run folder: there is no such folder")
    problems: list[str] = []

    def mapping(name: str, parse: Callable[[str], Any]) -> Mapping[str, Any]:
        content = _read(folder / name, problems)
        if content is None:
            return {}
        try:
            value = parse(content)
        except (ValueError, yaml.YAMLError):
            value = None
        if not isinstance(value, Mapping):
            problems.append(f"{name} cannot be read.")
            return {}
        return value

    return Run(
        folder,
        mapping("config.yaml", yaml.safe_load),
        _metrics(folder / "metrics.jsonl", problems),
        mapping("results.json", json.loads),
        mapping("environment.json", json.loads),
        tuple(problems),
    )


def _read(path: Path, problems: list[str]) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        problems.append(f"{path.name} is missing.")
        return None


def _metrics(path: Path, problems: list[str]) -> tuple[Line, ...]:
    lines, broken = [], []
    for count, content in enumerate((_read(path, problems) or "").splitlines(), 1):
        try:
            line = json.loads(content)
        except ValueError:
            line = None
        if isinstance(line, dict):
            lines.append(line)
        else:
            broken.append(str(count))
    if broken:
        shown = ", ".join(broken[:_SHOWN]) + (
            ", \N{HORIZONTAL ELLIPSIS}" if broken[_SHOWN:] else ""
        )
        problems.append(f"{path.name} has lines that cannot be read: {shown}.")
    return tuple(lines)


def as_float(value: object) -> float:
    """A number of a JSON file; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value)


def as_mapping(value: object) -> Mapping[str, Any]:
    """An object of a JSON file; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}
