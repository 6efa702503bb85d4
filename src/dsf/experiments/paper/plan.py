"""Plans: which runs a paper's tables and figures need, and which belong together."""

import difflib
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError
from pydantic import model_validator as validator

from dsf.experiments.catalogue import recipe_names
from dsf.experiments.part import Part

Evaluation = Literal["knn", "knn-leave-one-out", "linear", "linear-paper", "corruption"]
Share = Annotated[float, Field(gt=0, le=1)]
ALL, TUNING = "all", "tuning"
DEFAULT = "cifar10"
_FOLDER = files("dsf.experiments.paper").joinpath("plans")


class Published(Part):
    """What the paper says of a run, in per cent.

    Attributes:
        by: who says it, if not the paper.
    """

    by: str | None = None
    epochs: PositiveInt | None = None
    knn: float | None = None
    knn_backbone: float | None = None
    linear: float | None = None
    mce: float | None = None
    finetune: float | None = None


class Method(Part):
    """What is compared.

    Attributes:
        label: in tables.
        recipe: where its settings come from.
        overrides: what all of its runs change.
        grid: what may be tuned, and the values to try.
        tuning: what its candidates change beside what those of all methods do.
    """

    label: str
    recipe: str
    overrides: tuple[str, ...] = ()
    grid: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    tuning: tuple[str, ...] = ()


class Evaluations(Part):
    """What is evaluated, and what it costs, roughly."""

    names: tuple[Evaluation, ...]
    seconds: NonNegativeFloat = 0.0


class Tuning(Part):
    """What the candidates of all methods change, and how they are judged."""

    overrides: tuple[str, ...] = ()
    evaluations: str = TUNING


class Finetuning(Part):
    """What is done with the encoder of a run, in place of training one.

    Attributes:
        of: the run.
        data: NAME or NAME:SIZE, as `dsf eval --data` takes it.
        budget: the share of the protocol's steps; below 1 with a small grid.
        seconds: that it takes, for estimates.
    """

    of: str
    data: str
    budget: Share = 1.0
    seconds: NonNegativeFloat = 0.0

    @property
    def identity(self) -> dict[str, Any]:
        """What a result must agree with."""
        return self.model_dump(exclude={"seconds"})


class Transfer(Part):
    """Fine-tuning of several encoders on several data sets, each pair a run of its own.

    Attributes:
        of: runs whose encoders they are.
        data: NAME or NAME:SIZE each.
        budget: the share of the protocol's steps; below 1 with a small grid.
        seconds: that one pair takes, for estimates.
        published: of a run, what the paper says of data sets, in per cent.
    """

    of: tuple[str, ...] = Field(min_length=1)
    data: tuple[str, ...] = Field(min_length=1)
    budget: Share = 1.0
    seconds: NonNegativeFloat = 0.0
    published: dict[str, dict[str, float]] = Field(default_factory=dict)

    @property
    def data_names(self) -> list[str]:
        """The data sets without their sizes."""
        return [short_name(data) for data in self.data]


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
        finetuning: set for the runs of a transfer, which train no encoder of their own.
    """

    method: str
    overrides: tuple[str, ...] = ()
    evaluations: str = "short"
    tuned: bool = True
    label: str | None = None
    published: Published = Published()
    candidate: tuple[str, ...] = ()
    finetuning: Finetuning | None = None


class Plan(Part):
    """All runs of a set of experiments.

    Attributes:
        name: of the plan, and of the folder of its results.
        title: of its chapter.
        data: the data set, as `dsf data list` has it.
        images: how many are trained on, for estimates.
        views_per_second: of a training, for estimates.
        views_size: the pixels of these views, where runs differ in them.
        start_seconds: that a run takes to begin, for estimates.
        evaluations: sets of them by name.
        methods: by name, in the order of tables.
        tuning: of the candidates.
        runs: by name.
        transfers: by name, what is done with encoders of runs.
        groups: runs that belong together.
        titles: of sections about a group, if not the usual ones.
        remarks: sentences to stand in these sections.
    """

    name: str
    title: str
    data: str
    images: PositiveInt
    views_per_second: PositiveFloat
    views_size: PositiveInt | None = None
    start_seconds: NonNegativeFloat = 0.0
    evaluations: dict[str, Evaluations]
    methods: dict[str, Method]
    tuning: Tuning = Tuning()
    runs: dict[str, PlannedRun] = Field(min_length=1)
    transfers: dict[str, Transfer] = Field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    titles: dict[str, str] = Field(default_factory=dict)
    remarks: dict[str, str] = Field(default_factory=dict)

    @validator(mode="after")
    def _agrees(self) -> Self:
        for name, method in self.methods.items():
            if method.recipe not in recipe_names():
                raise ValueError(f"methods.{name}.recipe: there is no recipe {method.recipe}")
        for name, transfer in self.transfers.items():
            for of in (*transfer.of, *transfer.published):
                if of not in self.runs:
                    raise ValueError(f"transfers.{name}: there is no run {of}")
            made = [run for run, _ in self._transferred(name, transfer)]
            if len(set(made)) < len(made) or set(made) & set(self.runs):
                raise ValueError(f"transfers.{name}: two runs would have one name; got {made}")
            for data in {data for row in transfer.published.values() for data in row}:
                if data not in transfer.data_names:
                    raise ValueError(f"transfers.{name}.published: there is no data set {data}")
        for name, run in self.every.items():
            if run.method not in self.methods:
                raise ValueError(f"runs.{name}.method: there is no method {run.method}")
            if run.evaluations not in self.evaluations and run.finetuning is None:
                raise ValueError(f"runs.{name}.evaluations: there are none named {run.evaluations}")
        for name, members in self.groups.items():
            for member in members:
                if member not in self.every:
                    raise ValueError(f"groups.{name}: there is no run {member}")
        for field in ("titles", "remarks"):
            for name in getattr(self, field):
                if name not in (*self.groups, *self.transfers):
                    raise ValueError(f"{field}.{name}: there is no group {name}")
        return self

    @cached_property
    def every(self) -> dict[str, PlannedRun]:
        """All runs: the candidates first, then those of the plan, then those of its transfers."""
        found = {}
        for name, method in self.methods.items():
            for values in product(*method.grid.values()) if method.grid else ():
                pairs = list(zip(method.grid, values, strict=True))
                short = "-".join(f"{key.rsplit('.', 1)[-1]}-{value:g}" for key, value in pairs)
                found[f"{TUNING}/{name}/{short}"] = PlannedRun(
                    method=name,
                    overrides=(*self.tuning.overrides, *method.tuning),
                    evaluations=self.tuning.evaluations,
                    tuned=False,
                    candidate=tuple(f"{key}={value!r}" for key, value in pairs),
                )
        found |= self.runs
        for name, transfer in self.transfers.items():
            found |= dict(self._transferred(name, transfer))
        return found

    def _transferred(self, name: str, transfer: Transfer) -> Iterator[tuple[str, PlannedRun]]:
        for of in transfer.of:
            known = transfer.published.get(of, {})
            for data in transfer.data:
                short = short_name(data)
                yield (
                    f"{name}/{of.partition('/')[2] or of}/{short}",
                    PlannedRun(
                        method=self.runs[of].method,
                        label=self.runs[of].label,
                        published=Published(finetune=known.get(short)),
                        finetuning=Finetuning(
                            of=of, data=data, budget=transfer.budget, seconds=transfer.seconds
                        ),
                    ),
                )

    @cached_property
    def parts(self) -> dict[str, list[str]]:
        """What may be asked for by one word: the tuning, the groups, the transfers."""
        found = {TUNING: [name for name, run in self.every.items() if run.candidate]}
        found |= {name: list(members) for name, members in self.groups.items()}
        found |= {
            name: [run for run in self.every if run.startswith(f"{name}/")]
            for name in self.transfers
        }
        return {name: members for name, members in found.items() if members}

    def address(self, name: str) -> str:
        """What to ask `dsf reproduce` for, to get a run or group of this plan."""
        prefixed = self.name != DEFAULT and self.name in plan_names()
        return f"{self.name}/{name}" if prefixed else name

    def candidates(self, method: str) -> list[str]:
        """The names of a method's candidates."""
        return [name for name, run in self.every.items() if run.candidate and run.method == method]

    def wanted(self, name: str) -> tuple[Evaluation, ...]:
        """The evaluations that a run is to have; fine-tuning is one by itself, and has none."""
        run = self.every[name]
        return () if run.finetuning else self.evaluations[run.evaluations].names

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

    def knows(self, word: str) -> bool:
        """Whether ``select`` takes a word."""
        return bool(self._found(word))

    def _select(self, word: str) -> Sequence[str]:
        found = self._found(word)
        if found:
            return found
        close = difflib.get_close_matches(word, [*self.groups, *self.every], 1)
        groups = ", ".join((ALL, *self.parts))
        raise ValueError(
            f"a run or group must be one of {groups}, or of those that --list shows; got {word!r}"
            + (f": did you mean {close[0]}?" if close else "")
        )

    def _found(self, word: str) -> Sequence[str]:
        if word == ALL:
            return list(self.every)
        if word in self.every:
            return [word]
        if word in self.groups:
            return self.groups[word]
        return [name for name in self.every if name.startswith(f"{word}/")]


def short_name(data: str) -> str:
    """A data set without its size.

    Example:
        >>> short_name("pets:256"), short_name("cifar10")
        ('pets', 'cifar10')
    """
    return data.partition(":")[0]


def plan_names() -> list[str]:
    """The plans of the package, the one that is meant where nobody says which first."""
    names = sorted(item.name.removesuffix(".yaml") for item in _FOLDER.iterdir())
    return sorted(names, key=lambda name: name != DEFAULT)


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
