"""Result files: one JSON file a run, and the numbers that tables take from it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from dsf.data.corruptions import SEVERITIES
from dsf.experiments.page.chart import Point
from dsf.experiments.page.run import as_float, as_mapping
from dsf.experiments.paper.plan import Evaluation
from dsf.files import read_json, write_file

FORMAT = 1
_PARTS = ("run", "settings", "environment", "training", "curve", "knn", "evaluations")


@dataclass(frozen=True)
class Outcome:
    """What came of a run: the content of its result file, and what tables want of it.

    Shares are in per cent; what was not measured is NaN.
    """

    content: Mapping[str, Any]

    @property
    def failure(self) -> str | None:
        """Why there are no numbers."""
        return self.content.get("failure")

    @property
    def knn(self) -> float:
        """kNN by the projection, as the authors report it."""
        return self._share("knn", "projection")

    @property
    def knn_backbone(self) -> float:
        """kNN by the backbone's features."""
        return self._share("knn", "backbone")

    @property
    def linear_fast(self) -> float:
        """Logistic regression on fixed features."""
        return self._share("linear", "accuracy")

    @property
    def linear_paper(self) -> float:
        """The paper's linear evaluation; that of the corruption benchmark is the same."""
        found = self._share("linear-paper", "accuracy")
        if math.isfinite(found):
            return found
        inside = as_mapping(self._evaluation("corruption").get("details")).get("linear")
        return 100 * as_float(as_mapping(inside).get("accuracy"))

    @property
    def mce(self) -> float:
        """The mean error over types of corruption at severity 1."""
        return self._share("corruption", "mce_of_severity_1")

    @property
    def mce_all(self) -> float:
        """The mean error over types and all severities of corruption."""
        for name, entry in self._evaluations().items():
            severities = as_mapping(entry.get("protocol")).get("severities")
            if name.startswith("corruption") and severities == list(SEVERITIES):
                return 100 * as_float(entry.get("mce"))
        return math.nan

    @property
    def score(self) -> float:
        """What candidates are judged by: leave-one-out kNN of the backbone's features."""
        for name, entry in self._evaluations().items():
            if "leave_one_out" in name:
                return 100 * as_float(as_mapping(entry).get("backbone"))
        return math.nan

    @property
    def finetuned(self) -> float:
        """Fine-tuning, by the metric of its data set."""
        for name, entry in self._evaluations().items():
            if name.startswith("finetune"):
                per_class = as_mapping(entry.get("protocol")).get("metric") == "mean per class"
                return 100 * as_float(entry.get("mean_per_class" if per_class else "accuracy"))
        return math.nan

    @property
    def checkpoints(self) -> set[str]:
        """The checksums of what was evaluated."""
        protocols = (as_mapping(entry.get("protocol")) for entry in self._evaluations().values())
        return {found["checkpoint_sha256"] for found in protocols if "checkpoint_sha256" in found}

    @property
    def test_images(self) -> float:
        """How many images an accuracy is the share of."""
        for entry in self._evaluations().values():
            protocol = as_mapping(as_mapping(entry).get("protocol"))
            count = as_float(as_mapping(protocol.get("data")).get("test_samples"))
            if math.isfinite(count):
                return count
        return math.nan

    @property
    def views(self) -> float:
        """Views seen in training."""
        return self._training("views")

    @property
    def start(self) -> float:
        """Seconds that the first epoch took more than others do.

        They went into compiling, mostly, which the next run of the same kind on a machine is
        spared: methods cannot be compared by them.
        """
        times = self.curve("seconds")
        usual = [(y - y0) / (x - x0) for (x0, y0), (x, y) in pairwise(times)]
        return max(0.0, times[0][1] - median(usual) * times[0][0]) if usual else 0.0

    @property
    def seconds(self) -> float:
        """Of training, on the device, without the start."""
        processes = as_float(as_mapping(self.content["training"]).get("processes", 1))
        return self._training("device_seconds") - self.start * processes

    @property
    def spent(self) -> float:
        """Seconds of training, or of its evaluations where nothing was trained before them."""
        whole = self._training("device_seconds")
        if math.isfinite(whole):
            return whole
        found = (as_mapping(entry).get("provenance") for entry in self._evaluations().values())
        return sum(as_float(as_mapping(item).get("seconds")) for item in found)

    @property
    def gibibytes(self) -> float:
        """The peak of the device's memory."""
        return self._training("peak_memory_bytes") / 2**30

    def lacks(self, evaluations: Sequence[Evaluation]) -> list[Evaluation]:
        """Those of a plan's evaluations that it has not; none if the run failed."""
        if self.failure:
            return []
        there = {
            "knn": self.knn_backbone,
            "knn-leave-one-out": self.score,
            "linear": self.linear_fast,
            "linear-paper": self.linear_paper,
            "corruption": self.mce_all,
        }
        return [name for name in evaluations if math.isnan(there[name])]

    def setting(self, path: str) -> Any:
        """A setting by its dotted path."""
        value: Any = self.content["settings"]
        for part in path.split("."):
            value = as_mapping(value).get(part)
        return value

    def curve(self, name: str, over: str = "epoch", part: str = "curve") -> list[Point]:
        """Points of a metric over epochs or seconds, as (x, y)."""
        found = as_mapping(self.content[part])
        pairs = zip(found.get(over, ()), found.get(name, ()), strict=False)
        return [(as_float(x), as_float(y)) for x, y in pairs]

    def _evaluations(self) -> Mapping[str, Any]:
        return as_mapping(self.content["evaluations"])

    def _evaluation(self, name: str) -> Mapping[str, Any]:
        """An evaluation by the first word of its name; the others say what is unusual about it."""
        for key, entry in self._evaluations().items():
            if key.split()[0] == name and "leave_one_out" not in key:
                return as_mapping(entry)
        return {}

    def _share(self, evaluation: str, number: str) -> float:
        return 100 * as_float(self._evaluation(evaluation).get(number))

    def _training(self, name: str) -> float:
        return as_float(as_mapping(self.content["training"]).get(name))


def result_path(results: Path, name: str) -> Path:
    """Where the result of a run is kept."""
    return results / f"{name}.json"


def read_outcome(results: Path, name: str) -> Outcome | None:
    """The result of a run; None if there is none."""
    path = result_path(results, name)
    if not path.is_file():
        return None
    remedy = "bring it back from version control, or remove it to run it again"
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}. The file is damaged: {remedy}") from None
    missing = [part for part in _PARTS if part not in content]
    if missing:
        raise ValueError(f"{path} is no whole result: it has no {', '.join(missing)}; {remedy}")
    if content.get("format") != FORMAT:
        raise ValueError(f"{path}: format must be {FORMAT}; got {content.get('format')!r}")
    if content["run"] != name:
        raise ValueError(f"{path} must be the result of {name}; got that of {content['run']!r}")
    return Outcome(content)


def write_outcome(results: Path, name: str, content: Mapping[str, Any]) -> Path:
    """Write a result file, whole or not at all."""
    path = result_path(results, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, (laid_out(content) + "\n").encode())
    return path


def laid_out(value: Any, indent: str = "") -> str:
    """JSON with a name a line, and lists of plain values on one.

    Example:
        >>> print(laid_out({"loss": [1.5, 2.0], "name": "a"}))
        {
         "loss": [1.5, 2.0],
         "name": "a"
        }
    """
    if isinstance(value, Mapping) and value:
        inner = indent + " "
        rows = [f"{inner}{json.dumps(key)}: {laid_out(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, Sequence) and any(isinstance(item, Mapping) for item in value):
        inner = indent + " "
        rows = [f"{inner}{laid_out(item, inner)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
