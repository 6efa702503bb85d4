"""The page of one run or of several side by side, put together."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dsf.experiments.page.accuracy import accuracy_section, headline
from dsf.experiments.page.compare import cost_section, environment_section, settings_section
from dsf.experiments.page.curves import curves_section
from dsf.experiments.page.document import document, note, section
from dsf.experiments.page.figures import Figures
from dsf.experiments.page.gallery import (
    Pictures,
    maps_section,
    neighbours_section,
    views_section,
)
from dsf.experiments.page.lack import Lack
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.robustness import (
    confusion_section,
    corruption_section,
    geometry_section,
)
from dsf.experiments.page.run import Run, Runs, as_float, as_mapping, whose
from dsf.experiments.page.tables import DASH, table


class Page(NamedTuple):
    """A page as HTML, and the figures in it."""

    html: str
    figures: Figures


def make_page(
    title: str,
    lead: str,
    runs: Runs,
    pictures: Pictures | None = None,
    lacks: Mapping[str, Lack] | None = None,
) -> Page:
    """The page; the same for the same input.

    Args:
        title: its heading.
        lead: what was done, in a sentence or two.
        runs: of ``read_run``, by labels that are unlike each other.
        pictures: what needs images and weights; without them the page has charts and tables.
        lacks: what the data sets of runs lack, by label, so that no evaluation is advised that
            cannot be made.
    """
    if not runs:
        raise ValueError("runs: a page needs at least one; got none")
    figures = Figures()
    parts = list(_parts(runs, pictures, lacks or {}, figures))
    first = headline(next(iter(runs.values())).results) if len(runs) == 1 else None
    folders = ", ".join(str(run.folder) for run in runs.values())
    body = (
        tag("header", tag("h1", title), tag("p", lead), first),
        tag("main", *parts),
        tag("footer", f"Made by dsf from {folders}."),
    )
    return Page(document(title, body, charts=bool(figures.charts)), figures)


def _parts(
    runs: Runs, pictures: Pictures | None, lacks: Mapping[str, Lack], figures: Figures
) -> Iterator[Markup]:
    several = len(runs) > 1
    for label, run in runs.items():
        if run.problems:
            yield note(f"{whose(runs, label)}{' '.join(run.problems)}")
        wanted = run.config.get("epochs")
        if isinstance(wanted, int) and run.metrics and run.reached < wanted:
            epochs = f"{run.reached:g} of {wanted} epochs"
            yield note(f"{whose(runs, label)}The run has {epochs}: it is not finished.")
    if several:
        yield _overview(runs)
        yield settings_section(runs)
    known = pictures or Pictures()
    counts = {len(known.classes.get(label, ())) for label in runs}
    yield accuracy_section(runs, lacks, counts.pop() if len(counts) == 1 else None)
    yield curves_section(runs, figures, lacks)
    yield cost_section(runs)
    if pictures is not None:
        yield views_section(pictures, figures, several)
        yield neighbours_section(pictures, several)
        yield maps_section(pictures, figures, several)
    yield confusion_section(runs, figures, known.classes, lacks)
    yield corruption_section(runs, figures, lacks)
    if (geometry := geometry_section(runs, figures)) is not None:
        yield geometry
    if not several:
        yield settings_section(runs)
    yield environment_section(runs)


def _overview(runs: Runs) -> Markup:
    """What each run is."""
    header = ("run", "data", "method", "loss", "encoder", "views", "epochs", "seed")
    rows = [(label, *_summary(run)) for label, run in runs.items()]
    return section("runs", "Runs", table("What each run is", header, rows, numbers=(5, 6, 7)))


def _summary(run: Run) -> tuple[object, ...]:
    def named(part: str) -> object:
        return as_mapping(run.config.get(part)).get("name", DASH)

    wanted = as_float(run.config.get("epochs"))
    epochs: str = DASH if math.isnan(wanted) else f"{wanted:g}"
    if run.metrics and run.reached < wanted:
        epochs = f"{run.reached:g} of {epochs}"
    views = f"{run.views:g}" if math.isfinite(run.views) else DASH
    return (
        named("data"),
        run.config.get("method", DASH),
        named("loss"),
        named("encoder"),
        views,
        epochs,
        run.config.get("seed", DASH),
    )
