"""From a run folder to a result that is small enough to keep for ever."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dsf.experiments.run import CONFIG, ENVIRONMENT, METRICS, RESULTS
from dsf.files import read_json
from dsf.training.metrics import Line, read_metrics

# Metrics of the training that figures draw.
CURVES = (
    "loss",
    "margin",
    "positive",
    "negative",
    "kappa_mean",
    "kappa_min",
    "kappa_max",
    "resultant_mean",
    "kl_log",
    "kl_bessel",
    "kl_cos",
    "negative_kl_cos",
    "feature_spread",
)
_POINTS = 101  # of a curve
_DIGITS = 6
# Details of evaluations that are large and that no table shows.
_BULKY = ("confusion", "per_class", "held_out", "errors")
_PROVENANCE = ("command", "commit", "device", "seconds")


def reduced(folder: Path) -> dict[str, Any]:
    """What is worth keeping of a run folder: settings, environment, cost, curves, evaluations."""
    lines = read_metrics(folder / METRICS)
    results = read_json(folder / RESULTS) if (folder / RESULTS).is_file() else {}
    return {
        "settings": yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8")),
        "environment": _environment(read_json(folder / ENVIRONMENT)),
        "training": results.pop("training", {}),
        **_curves(lines),
        "warnings": [line.get("text", "") for line in lines if line["kind"] == "warning"][-1:],
        "evaluations": reduced_evaluations(results),
    }


def reduced_finetuning(settings: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    """What is worth keeping of the fine-tuning of a run's encoder.

    Args:
        settings: of the run.
        entries: what ``evaluate`` gave.
    """
    places = [entry.get("provenance", {}) for entry in entries.values()]
    environment = {name: value for name, value in places[0].items() if name != "seconds"}
    return {
        "settings": settings,
        "environment": environment,
        "training": {},
        "curve": {},
        "knn": {},
        "warnings": [],
        "evaluations": reduced_evaluations(entries),
    }


def reduced_evaluations(entries: Mapping[str, Any]) -> dict[str, Any]:
    """What is worth keeping of evaluations."""
    return {name: _evaluation(entry) for name, entry in entries.items()}


def _curves(lines: Sequence[Line]) -> dict[str, Any]:
    epochs = [line for line in lines if line["kind"] == "epoch"]
    spent, seconds = 0.0, {0: 0.0}
    for line in epochs:
        spent += line.get("seconds", 0.0)
        seconds[line["epoch"]] = spent
    kept = _thinned(epochs)
    curve = {
        "epoch": [line["epoch"] for line in kept],
        "seconds": [_short(seconds[line["epoch"]]) for line in kept],
    }
    for name in CURVES:
        values = [_short(line.get(name)) for line in kept]
        if any(value is not None for value in values):
            curve[name] = values
    seen = _thinned([line for line in lines if line["kind"] == "knn"])
    knn = {
        "epoch": [line["epoch"] for line in seen],
        "seconds": [_short(seconds.get(line["epoch"])) for line in seen],
        "backbone": [_short(line.get("backbone")) for line in seen],
        "projection": [_short(line.get("projection")) for line in seen],
    }
    return {"curve": curve, "knn": knn}


def _thinned(lines: Sequence[Line]) -> list[Line]:
    """At most so many lines, the first and the last among them."""
    every = max(1, math.ceil((len(lines) - 1) / (_POINTS - 1)))
    kept = list(lines[::every])
    return kept if not lines or kept[-1] is lines[-1] else [*kept, lines[-1]]


def _short(value: Any) -> float | None:
    """A number to six digits; None for what JSON has no number for."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


def _environment(found: Mapping[str, Any]) -> dict[str, Any]:
    """Where the run began; of where it went on only what may differ."""
    resumed = [
        {name: part.get(name) for name in ("step", "commit", "device")}
        for part in found.get("resumed", [])
    ]
    return {**found, "resumed": resumed} if resumed else dict(found)


def _evaluation(entry: Mapping[str, Any]) -> dict[str, Any]:
    provenance = entry.get("provenance", {})
    kept = {name: provenance[name] for name in _PROVENANCE if name in provenance}
    return _without_bulk(entry) | {"provenance": kept}


def _without_bulk(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_bulk(item) if isinstance(item, Mapping) else item
        for name, item in value.items()
        if name not in _BULKY
    }
