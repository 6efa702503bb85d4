"""What a run folder holds, however complete."""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dsf.experiments.nearby import run_hint
from dsf.experiments.page.chart import Point

Line = Mapping[str, Any]
FILES = ("config.yaml", "metrics.jsonl", "results.json", "environment.json")
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

    @property
    def views(self) -> float:
        """The views of an image, local ones too."""
        views = as_mapping(self.config.get("views"))
        local = as_float(as_mapping(views.get("local")).get("count", 0))
        return as_float(views.get("count")) + (local if math.isfinite(local) else 0)

    @property
    def reached(self) -> float:
        """The last epoch that was finished."""
        return max((x for x, _ in self.series("epoch", "epoch") if math.isfinite(x)), default=0.0)


Runs = Mapping[str, Run]  # by label


def read_runs(folders: Sequence[Path | str]) -> dict[str, Run]:
    """Read run folders, each once, by the end of their paths that tells them apart.

    What is missing in a folder, or broken, is said in the ``problems`` of its run; a folder without
    any of a run's files is none.
    """
    if not folders:
        raise ValueError("runs: give at least one run folder; got none")
    given = list({Path(folder).resolve(): Path(folder) for folder in folders}.items())
    for _, folder in given:
        _check(folder)
    labels = _labels([place for place, _ in given])
    return {label: read_run(folder) for label, (_, folder) in zip(labels, given, strict=True)}


def _check(folder: Path) -> None:
    if not folder.exists():
        raise FileNotFoundError(_missing(folder))
    if not folder.is_dir():
        raise ValueError(f"{folder} is no run folder: it is a file")
    if not any((folder / name).is_file() for name in FILES):
        raise ValueError(
            f"{folder} is no run folder: it has none of {', '.join(FILES)}{run_hint(folder)}"
        )


def _missing(folder: Path) -> str:
    return f"{folder} is no run folder: there is no such folder{run_hint(folder)}"


def _labels(places: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as make them differ.

    Example:
        >>> _labels([Path("/a/one/dsf"), Path("/a/two/dsf"), Path("/a/two/moco")])
        ['one/dsf', 'two/dsf', 'moco']
    """
    result = []
    for place in places:
        parts = place.parts
        count = 1
        while count < len(parts) and any(
            other.parts[-count:] == parts[-count:] for other in places if other != place
        ):
            count += 1
        result.append("/".join(parts[-count:]).replace(os.sep, "/") or str(place))
    return result


def whose(runs: Runs, label: str) -> str:
    """What begins a sentence about one of several runs."""
    return f"{label}: " if len(runs) > 1 else ""


def slug(label: str) -> str:
    """A label as the name of a file.

    Example:
        >>> slug("after training"), slug("two/lr=0.06")
        ('after-training', 'two-lr-0.06')
    """
    return re.sub(r"[^\w.]+", "-", label).strip("-.") or "run"


def read_run(folder: Path | str) -> Run:
    """Read a run folder. What is missing or broken is said in ``problems``, and left out."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(_missing(folder))
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
