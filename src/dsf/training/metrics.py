"""Metrics: summed on the device, fetched together, and written as lines of JSON."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsf import distributed
from dsf.files import write_file

Line = dict[str, Any]
_NEVER = 2**62


class Meter:
    """Means of scalars that live on a device; only :meth:`fetch` waits for it."""

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._first_bad = torch.full((), _NEVER, dtype=torch.int64, device=self.device)

    def add(self, **values: Tensor) -> None:
        """Count one value of each name."""
        for name, value in values.items():
            value = value.detach().double()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def watch(self, loss: Tensor, step: int) -> None:
        """Remember the first step whose loss is not finite."""
        bad = self._first_bad.clamp(max=step)
        self._first_bad = torch.where(torch.isfinite(loss.detach()), self._first_bad, bad)

    def first_bad_step(self) -> int | None:
        """The first step whose loss was not finite in any process."""
        step = int(distributed.gather(self._first_bad.reshape(1)).min())
        return None if step == _NEVER else step

    def state(self) -> dict[str, list[float]]:
        """Sums and counts by name, the sums averaged over processes.

        Of what is called ``_min`` or ``_max`` it is the smallest or largest of all processes.
        """
        if not self._sums:
            return {}
        each = distributed.gather(torch.stack(list(self._sums.values())).unsqueeze(0))
        columns = zip(self._sums, each.unbind(dim=1), strict=True)
        sums = torch.stack([_over_processes(name, column) for name, column in columns]).tolist()
        pairs = zip(self._sums, sums, strict=True)
        return {name: [total, self._counts[name]] for name, total in pairs}

    def load(self, state: dict[str, list[float]]) -> None:
        """Go on from a state."""
        self._sums = {
            name: torch.tensor(total, dtype=torch.float64, device=self.device)
            for name, (total, _) in state.items()
        }
        self._counts = {name: int(count) for name, (_, count) in state.items()}

    def fetch(self) -> dict[str, list[float]]:
        """The state, after which counting starts anew."""
        result = self.state()
        self._sums, self._counts = {}, {}
        return result


def _over_processes(name: str, values: Tensor) -> Tensor:
    if name.endswith("_min"):
        return values.min()
    return values.max() if name.endswith("_max") else values.mean()


def means(state: dict[str, list[float]]) -> dict[str, float]:
    """Means by name."""
    return {name: total / count for name, (total, count) in state.items()}


def add_states(
    one: dict[str, list[float]], other: dict[str, list[float]]
) -> dict[str, list[float]]:
    """Sums and counts of both."""
    result = dict(one)
    for name, (total, count) in other.items():
        before = result.get(name, [0.0, 0])
        result[name] = [before[0] + total, before[1] + count]
    return result


class MetricsFile:
    """``metrics.jsonl``: one JSON object a line.

    Args:
        path: of the file.
        step: where the run starts; lines of later steps, left by one that was killed, are dropped,
            from the start all.
    """

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [line for line in read_metrics(path) if line["step"] <= step] if step else []
        write_file(path, "".join(_encode(line) for line in kept).encode())
        self._file = open(path, "a")  # noqa: SIM115 - as long as the run

    def write(self, line: Line) -> None:
        """Append a line; whoever reads along sees it at once."""
        try:
            self._file.write(_encode(line))
            self._file.flush()
        except OSError as error:
            raise self._named(error) from error

    def sync(self) -> None:
        """Force all lines to the disk."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._named(error) from error

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError as error:
            raise self._named(error) from error

    def _named(self, error: OSError) -> OSError:
        return OSError(error.errno, f"cannot write {self.path}: {error.strerror}")


def read_metrics(path: Path | str) -> list[Line]:
    """The lines of a metrics file; one that a kill cut short is left out."""
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        return []
    result = []
    for row in text.splitlines():
        try:
            line = json.loads(row)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            result.append(line)
    return result


def _encode(line: Line) -> str:
    return json.dumps(line) + "\n"
