"""Where the runs of a plan stand."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from dsf.evaluation.partial import settings_tried
from dsf.experiments.evaluations import PARTIAL
from dsf.experiments.paper.configuration import NotTunedError, configure, difference
from dsf.experiments.paper.folder import progress
from dsf.experiments.paper.outcome import Outcome, read_outcome, result_path
from dsf.experiments.paper.plan import Plan
from dsf.experiments.recipe import load_recipe

State = Literal["done", "failed", "other", "partial", "not run"]


class Standing(NamedTuple):
    """Where a run stands.

    Args:
        name: of the run.
        state: in a word; "other" has a result of another configuration.
        about: numbers, or how far it is.
        minutes: that it took, or is estimated to take.
    """

    name: str
    state: State
    about: str
    minutes: float


def standings(plan: Plan, names: Sequence[str], results: Path, runs: Path) -> list[Standing]:
    """Where runs stand, in order."""
    return [_standing(plan, name, results, runs) for name in names]


def strangers(plan: Plan, results: Path) -> list[Path]:
    """Result files that are of no run of the plan."""
    known = {result_path(results, name) for name in plan.every}
    return sorted(path for path in results.rglob("*.json") if path not in known)


def estimated_seconds(plan: Plan, name: str) -> float:
    """What training and evaluating a run takes, by the plan's own numbers."""
    run = plan.every[name]
    if run.finetuning is not None:
        return run.finetuning.seconds
    method = plan.methods[run.method]
    # Candidates differ in what costs nothing.
    settings = load_recipe(method.recipe, (*method.overrides, *run.overrides))
    views = settings.epochs * plan.images * settings.views.count
    evaluation = plan.evaluations[run.evaluations].seconds
    # A transformer's time goes with its patches, a convolution's with its pixels.
    larger = 1.0 if plan.views_size is None else (settings.views.size / plan.views_size) ** 2
    return plan.start_seconds + larger * views / plan.views_per_second + evaluation


def shown_outcome(outcome: Outcome) -> str:
    """The numbers of a result on one line."""
    numbers = (
        ("kNN", outcome.knn),
        ("backbone", outcome.knn_backbone),
        ("linear", outcome.linear_fast),
        ("paper's", outcome.linear_paper),
        ("mCE", outcome.mce),
        ("of all severities", outcome.mce_all),
        ("leave-one-out kNN", outcome.score),
        ("fine-tuned", outcome.finetuned),
    )
    return ", ".join(f"{name} {value:.2f}" for name, value in numbers if math.isfinite(value))


def _standing(plan: Plan, name: str, results: Path, runs: Path) -> Standing:
    outcome = read_outcome(results, name)
    estimate = estimated_seconds(plan, name) / 60
    if outcome is None:
        begun = _begun(plan, name, runs / name)
        if begun is None:
            return Standing(name, "not run", _waits_for(plan, name, results), estimate)
        return Standing(name, "partial", begun, estimate)
    minutes = outcome.spent / 60
    if outcome.failure:
        return Standing(name, "failed", outcome.failure, minutes)
    try:
        other = difference(outcome, configure(plan, name, results))
    except NotTunedError:
        other = "its tuning is gone"
    if other is not None:
        return Standing(name, "other", other, minutes)
    about = shown_outcome(outcome)
    if lacking := outcome.lacks(plan.wanted(name)):
        about += f"; lacks {', '.join(lacking)}"
    return Standing(name, "done", about, minutes)


def _waits_for(plan: Plan, name: str, results: Path) -> str:
    try:
        configure(plan, name, results)
    except NotTunedError:
        return f"needs {plan.address(f'tuning/{plan.every[name].method}')}"
    asked = plan.every[name].finetuning
    if asked is not None and not result_path(results, asked.of).is_file():
        return f"needs {plan.address(asked.of)}"
    return ""


def _begun(plan: Plan, name: str, folder: Path) -> str | None:
    """How far a run is, in words; None if it was not begun."""
    if plan.every[name].finetuning is not None:
        tried = settings_tried(folder / PARTIAL)
        return f"{tried} settings tried" if tried else None
    found = progress(folder)
    if found is None:
        return None
    trained = " (trained, not yet evaluated)" if found.trained else ""
    return f"epoch {found.epoch:.3g} of {found.epochs}{trained}"
