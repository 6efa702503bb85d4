"""Runs of a plan: trained and evaluated where they are missing, and reduced to one file each."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from dsf.experiments.evaluations import Choices, evaluate
from dsf.experiments.paper.claim import claimed
from dsf.experiments.paper.configuration import (
    Configuration,
    NotTunedError,
    configure,
    difference,
    settings_difference,
)
from dsf.experiments.paper.outcome import (
    FORMAT,
    Outcome,
    read_outcome,
    result_path,
    write_outcome,
)
from dsf.experiments.paper.plan import Evaluation, Plan
from dsf.experiments.paper.reduce import reduced
from dsf.experiments.run import CONFIG, train
from dsf.training.health import NonFiniteLossError

# The paper's corruption benchmark: severity 1, and the classifier of its linear evaluation.
_PAPER = Choices(linear="paper", severities=(1,))
_EVALUATIONS: dict[Evaluation, tuple[str, Choices]] = {
    "knn": ("knn", Choices()),
    "linear": ("linear", Choices()),
    "knn-leave-one-out": ("knn", Choices(leave_one_out=True)),
    "linear-paper": ("linear", _PAPER),
    "corruption": ("corruption", _PAPER),
}


def reproduce(
    plan: Plan,
    names: Sequence[str],
    results: Path,
    runs: Path,
    overrides: Sequence[str] = (),
    again: bool = False,
    say: Callable[[str], None] = lambda text: None,
    show: bool = True,
) -> None:
    """Train and evaluate what is missing.

    A run whose result is there is not touched; one that was stopped goes on from its folder; one
    that another process is at is passed over, so that several may share a list.

    Args:
        plan: of the runs.
        names: of the runs, in order.
        results: where results are kept.
        runs: where the run folders lie.
        overrides: settings to change in all of them, for a trial.
        again: forget what there is of them, results and run folders, and begin anew.
        say: told what happens next.
        show: a bar or lines on the standard error while it trains.
    """
    _check(plan, names, results, overrides)
    if again:
        # All at once and at the beginning: stopped, the command goes on without it.
        for name in names:
            _forget(result_path(results, name), runs / name)
    for name in names:
        asked = configure(plan, name, results, overrides)
        if _is_done(asked, results):
            say(f"{name}: done already, in {result_path(results, name)}")
            continue
        twin = _twin(plan, asked, results)
        if twin is not None:
            same = twin.content["run"]
            say(f"{name}: is the same run as {same}")
            write_outcome(results, name, dict(twin.content) | _identity(plan, asked, same))
            continue
        with claimed(runs / name) as mine:
            if mine:
                _run(plan, asked, results, runs / name, say, show)
            else:
                say(f"{name}: another process is at it")


def _forget(result: Path, folder: Path) -> None:
    result.unlink(missing_ok=True)
    if (folder / CONFIG).is_file():
        shutil.rmtree(folder)


def _identity(plan: Plan, asked: Configuration, same_as: str | None = None) -> dict[str, Any]:
    """What a result says of itself."""
    return {
        "format": FORMAT,
        "run": asked.name,
        "plan": plan.name,
        "command": f"dsf reproduce {asked.name}",
        "train": asked.command,
        "same_as": same_as,
        "tuning": asked.choice.content() if asked.choice else None,
    }


def _check(plan: Plan, names: Sequence[str], results: Path, overrides: Sequence[str]) -> None:
    """Complain before any work: of wrong settings, and of runs that will lack their tuning."""
    ready = set()
    for name in names:
        ready.add(name)
        try:
            configure(plan, name, results, overrides)
        except NotTunedError:
            missing = [
                candidate
                for candidate in plan.candidates(plan.every[name].method)
                if candidate not in ready and not result_path(results, candidate).is_file()
            ]
            if missing:
                raise


def _is_done(asked: Configuration, results: Path) -> bool:
    outcome = read_outcome(results, asked.name)
    if outcome is None:
        return False
    other = difference(outcome, asked.settings)
    if other is not None:
        raise ValueError(
            f"{result_path(results, asked.name)} is the result of another configuration: {other}. "
            "--again replaces it"
        )
    return True


def _twin(plan: Plan, asked: Configuration, results: Path) -> Outcome | None:
    """A result of the same settings: tuning may choose what another run is told to take."""
    wanted = set(plan.evaluations[plan.every[asked.name].evaluations].names)
    for name, run in plan.every.items():
        if name != asked.name and wanted <= set(plan.evaluations[run.evaluations].names):
            outcome = read_outcome(results, name)
            if outcome is not None and difference(outcome, asked.settings) is None:
                return outcome
    return None


def _run(
    plan: Plan,
    asked: Configuration,
    results: Path,
    folder: Path,
    say: Callable[[str], None],
    show: bool,
) -> None:
    _check_folder(asked, folder)
    say(f"{asked.name}: {asked.command}")
    content = _identity(plan, asked)
    try:
        train(asked.settings, folder, resume=True, show=show)
    except NonFiniteLossError as error:
        # The same seed would fail the same way: this is the run's result.
        content["failure"] = str(error).split(";")[0]
    else:
        _evaluate(plan, asked, folder, say)
    path = write_outcome(results, asked.name, content | reduced(folder))
    say(f"{asked.name}: {content.get('failure', 'done')}, in {path}")


def _evaluate(plan: Plan, asked: Configuration, folder: Path, say: Callable[[str], None]) -> None:
    wanted: dict[Choices, list[str]] = {}  # together where they may share features
    for evaluation in plan.evaluations[plan.every[asked.name].evaluations].names:
        name, choices = _EVALUATIONS[evaluation]
        wanted.setdefault(choices, []).append(name)
    for choices, names in wanted.items():
        evaluate(folder, names, asked.settings.device, choices=choices, say=say)


def _check_folder(asked: Configuration, folder: Path) -> None:
    """See that what is begun in the folder is this run."""
    config = folder / CONFIG
    if not config.is_file():
        return
    before = yaml.safe_load(config.read_text(encoding="utf-8"))
    other = settings_difference(before, asked.settings)
    if other is not None:
        raise ValueError(
            f"{folder} holds a run of another configuration: {other}. --again begins anew"
        )
