"""Plans: which runs a paper's tables and figures need, and which belong together."""

import difflib
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError
from pydantic import model_validator as validator

from dsf.experiments.catalogue import recipe_names
from dsf.experiments.part import Part

Evaluation = Literal["knn", "knn-leave-one-out", "linear", "linear-paper", "corruption"]
ALL, TUNING = "all", "tuning"
_FOLDER = files("dsf.experiments.paper").joinpath("plans")


class Published(Part):
    """What the paper says of a run, in per cent."""

    epochs: PositiveInt | None = None
    knn: float | None = None
    linear: float | None = None
    mce: float | None = None


class Method(Part):
    """What is compared.

    Attributes:
        label: in tables.
        recipe: where its settings come from.
        overrides: what all of its runs change.
        grid: what may be tuned, and the values to try.
    """

    label: str
    recipe: str
    overrides: tuple[str, ...] = ()
    grid: dict[str, tuple[float, ...]] = Field(default_factory=dict)


class Evaluations(Part):
    """What is evaluated, and what it costs, roughly."""

    names: tuple[Evaluation, ...]
    seconds: NonNegativeFloat = 0.0


class Tuning(Part):
    """What the candidates of all methods change, and how they are judged."""

    overrides: tuple[str, ...] = ()
    evaluations: str = TUNING


class PlannedRun(Part):
    """A run.

    Attributes:
        method: of the plan's.
        overrides: of the method's settings.
        evaluations: a name of the plan's.
        tuned: takes the winner of the method's candidates.
        label: in tables, if not the method's.
        published: the paper's numbers.
        candidate: of its method's tuning, what it tries.
    """

    method: str
    overrides: tuple[str, ...] = ()
    evaluations: str = "short"
    tuned: bool = True
    label: str | None = None
    published: Published = Published()
    candidate: tuple[str, ...] = ()


class Plan(Part):
    """All runs of a set of experiments.

    Attributes:
        name: of the plan, and of the folder of its results.
        title: of its chapter.
        data: the data set, as `dsf data list` has it.
        images: how many are trained on, for estimates.
        views_per_second: of a training, for estimates.
        start_seconds: that a run takes to begin, for estimates.
        evaluations: sets of them by name.
        methods: by name, in the order of tables.
        tuning: of the candidates.
        runs: by name.
        groups: runs that belong together.
    """

    name: str
    title: str
    data: str
    images: PositiveInt
    views_per_second: PositiveFloat
    start_seconds: NonNegativeFloat = 0.0
    evaluations: dict[str, Evaluations]
    methods: dict[str, Method]
    tuning: Tuning = Tuning()
    runs: dict[str, PlannedRun] = Field(min_length=1)
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @validator(mode="after")
    def _agrees(self) -> Self:
        for name, method in self.methods.items():
            if method.recipe not in recipe_names():
                raise ValueError(f"methods.{name}.recipe: there is no recipe {method.recipe}")
        for name, run in self.every.items():
            if run.method not in self.methods:
                raise ValueError(f"runs.{name}.method: there is no method {run.method}")
            if run.evaluations not in self.evaluations:
                raise ValueError(f"runs.{name}.evaluations: there are none named {run.evaluations}")
        for name, members in self.groups.items():
            for member in members:
                if member not in self.every:
                    raise ValueError(f"groups.{name}: there is no run {member}")
        return self

    @cached_property
    def every(self) -> dict[str, PlannedRun]:
        """All runs, the candidates first."""
        found = {}
        for name, method in self.methods.items():
            for values in product(*method.grid.values()) if method.grid else ():
                pairs = list(zip(method.grid, values, strict=True))
                short = "-".join(f"{key.rsplit('.', 1)[-1]}-{value:g}" for key, value in pairs)
                found[f"{TUNING}/{name}/{short}"] = PlannedRun(
                    method=name,
                    overrides=self.tuning.overrides,
                    evaluations=self.tuning.evaluations,
                    tuned=False,
                    candidate=tuple(f"{key}={value!r}" for key, value in pairs),
                )
        return found | self.runs

    def candidates(self, method: str) -> list[str]:
        """The names of a method's candidates."""
        return [name for name, run in self.every.items() if run.candidate and run.method == method]

    def label(self, name: str) -> str:
        """What a run is called in tables."""
        run = self.every[name]
        return run.label or self.methods[run.method].label

    def select(self, words: Sequence[str]) -> list[str]:
        """Runs by name, by group, by the beginning of their names, or all; each once."""
        found: dict[str, None] = {}
        for word in words:
            found |= dict.fromkeys(self._select(word.strip("/")))
        return list(found)

    def _select(self, word: str) -> Sequence[str]:
        if word == ALL:
            return list(self.every)
        if word in self.every:
            return [word]
        if word in self.groups:
            return self.groups[word]
        within = [name for name in self.every if name.startswith(f"{word}/")]
        if within:
            return within
        close = difflib.get_close_matches(word, [*self.groups, *self.every], 1)
        groups = ", ".join((ALL, TUNING, *self.groups))
        raise ValueError(
            f"a run or group must be one of {groups}, or of those that --list shows; got {word!r}"
            + (f": did you mean {close[0]}?" if close else "")
        )


def plan_names() -> list[str]:
    """The plans of the package."""
    return sorted(item.name.removesuffix(".yaml") for item in _FOLDER.iterdir())


def load_plan(name: str) -> Plan:
    """A plan of the package, or one in a file that ends in .yaml.

    Example:
        >>> load_plan("cifar10").select(["table1"])[0]
        'table1/dsf'
    """
    if name.endswith((".yaml", ".yml")):
        text = Path(name).read_text(encoding="utf-8")
    elif name in plan_names():
        text = _FOLDER.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    else:
        known = ", ".join(plan_names())
        raise ValueError(f"plan must be one of {known}, or a .yaml file; got {name!r}")
    try:
        return Plan.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(f"plan {name} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        lines = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in wrong]
        raise ValueError(f"plan {name}: " + "\n".join(lines)) from None
