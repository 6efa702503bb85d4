"""Where the runs of a plan stand."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from dsf.data.files import read_json
from dsf.experiments.paper.configuration import NotTunedError, configure, difference
from dsf.experiments.paper.outcome import Outcome, read_outcome, result_path
from dsf.experiments.paper.plan import Plan
from dsf.experiments.recipe import load_recipe
from dsf.experiments.run import CHECKPOINTS
from dsf.training.checkpoints import Checkpoints

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
    return [_standing(plan, name, results, runs / name) for name in names]


def strangers(plan: Plan, results: Path) -> list[Path]:
    """Result files that are of no run of the plan."""
    known = {result_path(results, name) for name in plan.every}
    return sorted(path for path in results.rglob("*.json") if path not in known)


def estimated_seconds(plan: Plan, name: str) -> float:
    """What training and evaluating a run takes, by the plan's own numbers."""
    run = plan.every[name]
    method = plan.methods[run.method]
    # Candidates differ in what costs nothing.
    settings = load_recipe(method.recipe, (*method.overrides, *run.overrides))
    views = settings.epochs * plan.images * settings.views.count
    evaluation = plan.evaluations[run.evaluations].seconds
    return plan.start_seconds + views / plan.views_per_second + evaluation


def shown_outcome(outcome: Outcome) -> str:
    """The numbers of a result on one line."""
    numbers = (
        ("kNN", outcome.knn),
        ("backbone", outcome.knn_backbone),
        ("linear", outcome.linear_fast),
        ("paper's", outcome.linear_paper),
        ("mCE", outcome.mce),
        ("leave-one-out kNN", outcome.score),
    )
    return ", ".join(f"{name} {value:.2f}" for name, value in numbers if math.isfinite(value))


def _standing(plan: Plan, name: str, results: Path, folder: Path) -> Standing:
    outcome = read_outcome(results, name)
    estimate = estimated_seconds(plan, name) / 60
    if outcome is None:
        progress = _progress(folder)
        if progress is None:
            return Standing(name, "not run", _waits_for(plan, name, results), estimate)
        return Standing(name, "partial", progress, estimate)
    minutes = outcome.seconds / 60
    if outcome.failure:
        return Standing(name, "failed", outcome.failure, minutes)
    try:
        other = difference(outcome, configure(plan, name, results).settings)
    except NotTunedError:
        other = "its tuning is gone"
    if other is not None:
        return Standing(name, "other", other, minutes)
    return Standing(name, "done", shown_outcome(outcome), minutes)


def _waits_for(plan: Plan, name: str, results: Path) -> str:
    try:
        configure(plan, name, results)
    except NotTunedError:
        return f"needs tuning/{plan.every[name].method}"
    return ""


def _progress(folder: Path) -> str | None:
    """How far the newest checkpoint is, in words."""
    paths = Checkpoints(folder / CHECKPOINTS).paths()
    if not paths:
        return None
    state = read_json(paths[-1] / "state.json")
    epoch = state["epoch"] + state["batch"] / state["steps_per_epoch"]
    total = load_recipe(str(folder / "config.yaml")).epochs
    trained = " (trained, not yet evaluated)" if epoch >= total else ""
    return f"epoch {epoch:.3g} of {total}{trained}"
