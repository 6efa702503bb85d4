"""What a run of a plan is asked to be: its settings, with what was chosen by tuning."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dsf.experiments.page.tables import flattened
from dsf.experiments.paper.outcome import Outcome, read_outcome, result_path
from dsf.experiments.paper.plan import TUNING, Finetuning, Plan
from dsf.experiments.recipe import load_recipe
from dsf.experiments.settings import AUTO, Settings

RULE = "leave-one-out kNN of the backbone's features, on training images and labels only"
# How a run is computed and watched, not what it computes.
_FREE = (
    "recipe",
    "device",
    "compile",
    "graph",
    "autotune",
    "deterministic",
    "log_every",
    "data.resident",
    "checkpoint",
    "knn",
    "tensorboard",
    "wandb",
)
# What is written down when a run begins, although nobody asked for it.
_FILLED_IN = ("data.size", "encoder.options.image_size")


class NotTunedError(ValueError):
    """A run needs what a tuning chooses, which has not run."""


class Choice(NamedTuple):
    """The winner of a tuning, what it sets, and what all candidates scored."""

    name: str
    overrides: tuple[str, ...]
    scores: dict[str, float | None]

    def content(self) -> dict[str, Any]:
        """As a result file keeps it."""
        return {"chosen": self.name, "by": RULE, "scores": self.scores}


class Configuration(NamedTuple):
    """What a run is asked to be.

    Args:
        name: of the run.
        recipe: where its settings begin.
        overrides: what is changed of it.
        settings: what that makes; of fine-tuning those of the encoder's own training.
        choice: what was tuned.
        finetuning: what is done with the encoder of another run, in place of training.
    """

    name: str
    recipe: str
    overrides: tuple[str, ...]
    settings: Settings
    choice: Choice | None
    finetuning: Finetuning | None = None

    @property
    def command(self) -> str:
        """What does the same without a plan, given the folder of the other run if need be."""
        if self.finetuning is None:
            return " ".join(["dsf train", self.recipe, *self.overrides])
        asked = self.finetuning
        short = "" if asked.budget == 1 else f" --budget {asked.budget:g}"
        return f"dsf eval {asked.of} finetune --data {asked.data}{short}"


def configure(plan: Plan, name: str, results: Path, overrides: Sequence[str] = ()) -> Configuration:
    """The settings of a run: of its recipe, method and tuning, then its own, then ``overrides``."""
    run = plan.every[name]
    if run.finetuning is not None:
        trained = configure(plan, run.finetuning.of, results, overrides)
        return trained._replace(name=name, finetuning=run.finetuning)
    method = plan.methods[run.method]
    choice = choose(plan, run.method, results, name) if run.tuned and method.grid else None
    chosen = choice.overrides if choice else run.candidate
    every = (*method.overrides, *chosen, *run.overrides, *overrides)
    # The last of several wins, as in `dsf train`.
    every = tuple({word.partition("=")[0]: word for word in every}.values())
    return Configuration(name, method.recipe, every, load_recipe(method.recipe, every), choice)


def choose(plan: Plan, method: str, results: Path, wanted_by: str) -> Choice:
    """The best candidate of a method; the first of equals. Those that failed have no score."""
    scores: dict[str, float | None] = {}
    names = plan.candidates(method)
    for name in names:
        outcome = read_outcome(results, name)
        if outcome is not None:
            scores[name] = None if math.isnan(outcome.score) else outcome.score
    if len(scores) < len(names):
        raise NotTunedError(
            f"{wanted_by} takes its settings from the tuning of {method}, of which "
            f"{len(scores)} of {len(names)} candidates have run: "
            f"`dsf reproduce {plan.address(f'{TUNING}/{method}')}` runs the others"
        )
    known = {name: score for name, score in scores.items() if score is not None}
    if not known:
        raise ValueError(f"all candidates of {TUNING}/{method} have failed: none can be chosen")
    best = max(known, key=lambda name: known[name])
    return Choice(best, plan.every[best].candidate, scores)


def difference(outcome: Outcome, asked: Configuration) -> str | None:
    """The first setting in which a result is not what is asked for, in words."""
    if asked.finetuning is not None:
        before, now = outcome.content.get("finetuning", {}), asked.finetuning.identity
        for key in now:
            if before.get(key) != now[key]:
                return f"{key} is {before.get(key)!r} there, and {now[key]!r} here"
    return settings_difference(outcome.content["settings"], asked.settings)


def check_outcome(outcome: Outcome, asked: Configuration, results: Path) -> None:
    """Raise ``ValueError`` unless a result is what is asked for."""
    other = difference(outcome, asked)
    if other is not None:
        raise ValueError(
            f"{result_path(results, asked.name)} is the result of another configuration: {other}. "
            "KEY=VALUE asks for it, --again replaces it"
        )


def settings_difference(before: Mapping[str, Any], settings: Settings) -> str | None:
    """The first setting that was another before; what is decided by the machine counts as equal.

    A setting that is newer than ``before`` had its default.
    """
    defaults = dict(flattened(Settings().model_dump(mode="json")))
    known, asked = dict(flattened(before)), dict(flattened(settings.model_dump(mode="json")))
    if asked["loss.temperature"] is None:
        asked["loss.temperature"] = settings.loss.usual_temperature
    free = (*_FREE, "encoder") if asked["encoder.name"] == AUTO else _FREE
    options = {key: None for key in known if ".options." in key}
    for key, wanted in (options | asked).items():
        decided = wanted == AUTO or (wanted is None and key in _FILLED_IN)
        if decided or key.startswith(free):
            continue
        found = known.get(key, defaults.get(key))
        if found != wanted:
            return f"{key} is {found!r} there, and {wanted!r} here"
    return None
