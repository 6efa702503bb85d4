"""Runs of a plan: trained and evaluated where they are missing, and reduced to one file each."""

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from dsf.data.corruptions.textures import find_textures
from dsf.experiments.build import load_split
from dsf.experiments.evaluations import PARTIAL, Choices, evaluate
from dsf.experiments.paper.claim import claimed
from dsf.experiments.paper.configuration import (
    Configuration,
    NotTunedError,
    check_outcome,
    configure,
    difference,
    settings_difference,
)
from dsf.experiments.paper.finetune import check_finetuning, finetune
from dsf.experiments.paper.outcome import (
    FORMAT,
    Outcome,
    read_outcome,
    result_path,
    write_outcome,
)
from dsf.experiments.paper.plan import Evaluation, Finetuning, Plan
from dsf.experiments.paper.reduce import reduced, reduced_evaluations
from dsf.experiments.paper.weights import find_encoder, open_weights
from dsf.experiments.run import CONFIG, RESULTS, train
from dsf.experiments.subjects import Opened
from dsf.training.health import NonFiniteLossError
from dsf.training.signals import Interrupted, stopped_at_once

# The corruption benchmark has the classifier of the paper's linear evaluation. The paper says that
# it is of severity 1; its numbers look like the mean over all five.
_PAPER = Choices(linear="paper")
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
    weights: Path | None = None,
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Train and evaluate what is missing.

    A run whose result is there is not touched, but that it gets the evaluations that it lacks, if
    its folder or its weights are still there; one that was stopped goes on from its folder; one
    that another process is at is passed over, so that several may share a list. Fine-tuning brings
    the run whose encoder it needs with it. One that fails keeps none but those that need it from
    their turn; the first error is raised at the end.

    Args:
        plan: of the runs.
        names: of the runs, in order.
        results: where results are kept.
        runs: where the run folders lie.
        overrides: settings to change in all of them, for a trial.
        again: forget what there is of them, results and run folders, and begin anew.
        say: told what happens next.
        show: a bar or lines on the standard error while it trains.
        weights: where exported encoders lie, to be used where the run folder is gone.
        begin: called once all that was asked for is found to be right, before the work.
    """
    failed: dict[str, Exception] = {}
    every = prepare(plan, names, results, runs, overrides, again, weights, begin)
    for name in every:
        finetuning = plan.every[name].finetuning
        if finetuning is not None and finetuning.of in failed:
            say(f"{name}: not begun: {finetuning.of} has no result")
            continue
        try:
            _make(plan, name, results, runs, overrides, say, show, weights)
        except Interrupted:
            raise
        except Exception as error:  # of the others that are asked for it says nothing
            failed[name] = error
            if len(every) > 1:
                say(f"{name}: failed: {error or type(error).__name__}")
    if failed:
        raise next(iter(failed.values()))


def _make(
    plan: Plan,
    name: str,
    results: Path,
    runs: Path,
    overrides: Sequence[str],
    say: Callable[[str], None],
    show: bool,
    weights: Path | None,
) -> None:
    """One run, as far as it is missing; arguments of ``reproduce``."""
    asked = configure(plan, name, results, overrides)
    outcome = _done(asked, results)
    lacking = outcome.lacks(plan.wanted(name)) if outcome else []
    source = find_encoder(name, outcome, runs, weights) if outcome and lacking else None
    if outcome is not None and source is None:
        gone = f" but for {', '.join(lacking)}, as its encoder is gone" if lacking else ""
        say(f"{name}: done already{gone}, in {result_path(results, name)}")
        return
    twin = None if outcome else _twin(plan, asked, results)
    if twin is not None:
        same = twin.content["run"]
        say(f"{name}: is the same run as {same}")
        write_outcome(results, name, dict(twin.content) | _identity(plan, asked, same))
        return
    with claimed(runs / name) as mine:
        if not mine:
            say(f"{name}: another process is at it")
        elif outcome is not None and source is not None:
            _complete(asked, outcome, lacking, source, results, runs / name, say)
        elif asked.finetuning is None:
            _run(plan, asked, results, runs / name, say, show)
        else:
            _finetune(plan, asked, asked.finetuning, results, runs, weights, say)


def prepare(
    plan: Plan,
    names: Sequence[str],
    results: Path,
    runs: Path,
    overrides: Sequence[str],
    again: bool,
    weights: Path | None,
    begin: Callable[[], None],
) -> list[str]:
    """Check what is asked for, and forget what is to be made again; arguments of ``reproduce``.

    Returns:
        The runs to make, with those whose encoders fine-tuning needs.
    """
    every = check(plan, names, results, runs, overrides, again, weights)
    begin()
    # All at once and at the beginning: stopped, the command goes on without it.
    for name in names if again else ():
        _forget(result_path(results, name), runs / name)
    return every


def check(
    plan: Plan,
    names: Sequence[str],
    results: Path,
    runs: Path,
    overrides: Sequence[str],
    again: bool,
    weights: Path | None,
) -> list[str]:
    """The runs to make; raise what would be wrong with them, before any work."""
    forgotten = set(names) if again else set()
    every = _with_encoders(plan, names, results, forgotten)
    _check(plan, every, results, runs, weights, overrides, forgotten)
    return every


def _forget(result: Path, folder: Path) -> None:
    result.unlink(missing_ok=True)
    if any((folder / name).exists() for name in (CONFIG, RESULTS, PARTIAL)):
        shutil.rmtree(folder)


def _with_encoders(
    plan: Plan, names: Sequence[str], results: Path, forgotten: Collection[str]
) -> list[str]:
    """The runs, and before each fine-tuning the run of its encoder, if that was never made."""
    found: dict[str, None] = {}
    for name in names:
        asked = plan.every[name].finetuning
        if asked is not None and (
            asked.of in forgotten or not result_path(results, asked.of).is_file()
        ):
            found[asked.of] = None
        found[name] = None
    return list(found)


def _identity(plan: Plan, asked: Configuration, same_as: str | None = None) -> dict[str, Any]:
    """What a result says of itself."""
    return {
        "format": FORMAT,
        "run": asked.name,
        "plan": plan.name,
        "command": f"dsf reproduce {plan.address(asked.name)}",
        "train": asked.command,
        **({"finetuning": asked.finetuning.identity} if asked.finetuning else {}),
        "same_as": same_as,
        "tuning": asked.choice.content() if asked.choice else None,
    }


def _check(
    plan: Plan,
    names: Sequence[str],
    results: Path,
    runs: Path,
    weights: Path | None,
    overrides: Sequence[str],
    forgotten: Collection[str],
) -> None:
    """Complain before any work: of wrong settings, and of runs that will lack what they need.

    Of results and begun runs too that are damaged or of other settings, which would end it when
    their turn comes.
    """
    ready: set[str] = set()
    found: set[tuple[str, int | None, str]] = set()
    for name in names:
        ready.add(name)
        asked = plan.every[name].finetuning
        outcome = None if name in forgotten else read_outcome(results, name)
        if asked is not None and outcome is None:
            check_finetuning(plan, asked, results, runs, weights, forgotten)
        if outcome is None and "corruption" in plan.wanted(name):
            find_textures()  # of frost: without them it would end after the first training
        try:
            configuration = configure(plan, name, results, overrides)
            if outcome is not None:
                check_outcome(outcome, configuration, results)
            elif asked is None and name not in forgotten:
                _check_folder(configuration, runs / name)
            elif asked is not None and asked.of not in forgotten:
                _trained(configuration, asked, results)
            settings = configuration.settings
            data = (settings.data.name, settings.data.size, settings.data.split)
            if asked is None and outcome is None and data not in found:
                load_split(settings, settings.data.split)
                found.add(data)
        except NotTunedError:
            missing = [
                candidate
                for candidate in plan.candidates(plan.every[name].method)
                if candidate not in ready and not result_path(results, candidate).is_file()
            ]
            if missing:
                raise


def _done(asked: Configuration, results: Path) -> Outcome | None:
    """The result of a run, if there is one."""
    outcome = read_outcome(results, asked.name)
    if outcome is not None:
        check_outcome(outcome, asked, results)
    return outcome


def _trained(asked: Configuration, what: Finetuning, results: Path) -> Outcome | None:
    """The result of the run whose encoder is fine-tuned, if it is of the settings asked for."""
    return _done(asked._replace(name=what.of, finetuning=None), results)


def _twin(plan: Plan, asked: Configuration, results: Path) -> Outcome | None:
    """A result of the same settings: tuning may choose what another run is told to take."""
    if asked.finetuning is not None:
        return None
    wanted = set(plan.wanted(asked.name))
    for name, run in plan.every.items():
        if run.finetuning is not None:
            continue
        if name != asked.name and wanted <= set(plan.wanted(name)):
            outcome = read_outcome(results, name)
            if outcome is not None and difference(outcome, asked) is None:
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
        with stopped_at_once("evaluations"):
            wanted = plan.wanted(asked.name)
            _evaluate(folder, wanted, asked.settings.device, folder, say)
    path = write_outcome(results, asked.name, content | reduced(folder))
    say(f"{asked.name}: {content.get('failure', 'done')}, in {path}")


def _complete(
    asked: Configuration,
    outcome: Outcome,
    lacking: Sequence[Evaluation],
    source: Path,
    results: Path,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Add evaluations to a result; the encoder is that of its folder, or exported weights."""
    say(f"{asked.name}: done but for {', '.join(lacking)}")
    settings = asked.settings
    what: Path | Opened = source
    if source != folder:
        data = settings.data
        name = data.name if data.size is None else f"{data.name}:{data.size}"
        opened = open_weights(source, name, settings.device, settings.seed, data.limit)
        what = replace(opened, data="")  # its own: the results are to be called as the run's are
    with stopped_at_once("evaluations"):
        entries = _evaluate(what, lacking, settings.device, folder, say)
    there = outcome.content["evaluations"] | reduced_evaluations(entries)
    path = write_outcome(results, asked.name, {**outcome.content, "evaluations": there})
    say(f"{asked.name}: done, in {path}")


def _evaluate(
    source: Path | Opened,
    evaluations: Sequence[Evaluation],
    device: str,
    folder: Path,
    say: Callable[[str], None],
) -> dict[str, Any]:
    wanted: dict[Choices, list[str]] = {}  # together where they may share features
    for evaluation in evaluations:
        name, choices = _EVALUATIONS[evaluation]
        wanted.setdefault(choices, []).append(name)
    entries: dict[str, Any] = {}
    for choices, names in wanted.items():
        entries |= evaluate(source, names, device, choices=choices, folder=folder, say=say)
    return entries


def _finetune(
    plan: Plan,
    asked: Configuration,
    what: Finetuning,
    results: Path,
    runs: Path,
    weights: Path | None,
    say: Callable[[str], None],
) -> None:
    trained = _trained(asked, what, results)
    if trained is None:
        say(f"{asked.name}: waits for {what.of}, which another process is at")
        return
    say(f"{asked.name}: {asked.command}")
    content = finetune(asked, what, trained, runs, weights, say) | _identity(plan, asked)
    path = write_outcome(results, asked.name, content)
    say(f"{asked.name}: {content.get('failure', 'done')}, in {path}")


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
