"""What the sections of the document share: the outcomes of a plan, rows of them, and figures."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsf.experiments.paper.configuration import check_outcome, configure
from dsf.experiments.paper.document.figures import Figures
from dsf.experiments.paper.document.markdown import NOT_RUN, NOTHING, fixed, millions, table
from dsf.experiments.paper.outcome import Outcome, read_outcome
from dsf.experiments.paper.plan import Plan
from dsf.experiments.recipe import load_recipe
from dsf.experiments.settings import Settings

Measure = Callable[[Outcome], float]
# The columns that most tables share.
MEASURES: dict[str, Measure] = {
    "kNN": lambda outcome: outcome.knn,
    "kNN, backbone": lambda outcome: outcome.knn_backbone,
    "linear": lambda outcome: outcome.linear_paper,
    "linear, fast": lambda outcome: outcome.linear_fast,
    "mCE": lambda outcome: outcome.mce,
    "mCE, all": lambda outcome: outcome.mce_all,
    "kNN, left out": lambda outcome: outcome.score,
}
SHORT = ("kNN", "kNN, backbone", "linear, fast")
COST = ("views, millions", "GPU s", "peak GiB")


@dataclass
class Book:
    """A plan with what came of its runs, and the figures that are drawn from it.

    Args:
        plan: of the runs.
        outcomes: of those that have a result.
        overrides: settings that were changed in all of them.
    """

    plan: Plan
    outcomes: dict[str, Outcome]
    overrides: Sequence[str] = ()
    figures: Figures = field(init=False)
    _settings: dict[str, Settings] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.figures = Figures(self.plan.name)

    @classmethod
    def read(cls, plan: Plan, results: Path, overrides: Sequence[str] = ()) -> "Book":
        """Read all results of a plan, and see that they are of its settings."""
        outcomes = {}
        for name in plan.every:
            outcome = read_outcome(results, name)
            if outcome is not None:
                check_outcome(outcome, configure(plan, name, results, overrides), results)
                outcomes[name] = outcome
        return cls(plan, outcomes, overrides)

    def get(self, name: str) -> Outcome | None:
        """What came of a run, if it has numbers."""
        outcome = self.outcomes.get(name)
        return None if outcome is None or outcome.failure else outcome

    def group(self, name: str) -> tuple[str, ...]:
        """The runs of a group; none if the plan has no such group."""
        return self.plan.groups.get(name, ())

    def done(self, names: Sequence[str]) -> list[tuple[str, Outcome]]:
        """Those runs that have numbers."""
        return [(name, outcome) for name in names if (outcome := self.get(name)) is not None]

    def partial(self, names: Sequence[str]) -> str | None:
        """A sentence if not all of the runs are done."""
        count = sum(name in self.outcomes for name in names)
        if count == len(names):
            return None
        if count == 0:
            return "**Not run yet.**"
        return f"**Partial: {count} of {len(names)} runs are done.**"

    def by_method(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Names by the label of their method, in the plan's order."""
        return {
            method.label: found
            for key, method in self.plan.methods.items()
            if (found := [name for name in names if self.plan.every[name].method == key])
        }

    def cells(self, name: str, measures: Sequence[str] = SHORT) -> list[str]:
        """Measures and cost of a run."""
        outcome = self.outcomes.get(name)
        if outcome is None:
            return [NOT_RUN, *[NOTHING] * (len(measures) + len(COST) - 1)]
        if outcome.failure:
            shown = [f"*failed: {outcome.failure}*", *[NOTHING] * (len(measures) - 1)]
        else:
            shown = [fixed(MEASURES[measure](outcome)) for measure in measures]
        return [*shown, *cost(outcome)]

    def runs_table(
        self, names: Sequence[str], measures: Sequence[str] = SHORT, first: str = "run"
    ) -> str:
        """A row a run: its label, epochs, measures and cost."""
        rows = [
            [self.plan.label(name), self.epochs(name), *self.cells(name, measures)]
            for name in names
        ]
        return table((first, "epochs", *measures, *COST), rows)

    def epochs(self, name: str) -> str:
        """How many epochs a run has, or is planned to have."""
        return str(self.planned(name).epochs)

    def planned(self, name: str) -> Settings:
        """The settings of a run but for what its tuning chooses."""
        if name not in self._settings:
            run = self.plan.every[name]
            method = self.plan.methods[run.method]
            overrides = (*method.overrides, *run.candidate, *run.overrides, *self.overrides)
            self._settings[name] = load_recipe(method.recipe, overrides)
        return self._settings[name]

    def heading(self, group: str, usual: str) -> str:
        """The heading of the section about a group."""
        return f"## {self.plan.titles.get(group, usual)}"


def cost(outcome: Outcome) -> list[str]:
    """Views, seconds and memory of a training."""
    gibibytes = outcome.gibibytes
    return [
        millions(outcome.views),
        fixed(outcome.seconds, 0),
        fixed(gibibytes, 1) if math.isfinite(gibibytes) else NOTHING,
    ]
