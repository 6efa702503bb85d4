"""The page of one run, put together."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dsf.experiments.page.accuracy import accuracy_section, headline
from dsf.experiments.page.curves import curves_section
from dsf.experiments.page.document import document, note, section
from dsf.experiments.page.gallery import (
    MAP,
    Gallery,
    maps_section,
    neighbours_section,
    views_section,
)
from dsf.experiments.page.maps import map_style
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.numbers import duration, number
from dsf.experiments.page.run import Run, as_float, as_mapping
from dsf.experiments.page.tables import flattened, pairs


def run_page(title: str, lead: str, run: Run, gallery: Gallery | None = None) -> str:
    """The page as HTML; the same for the same input.

    Args:
        title: its heading.
        lead: what was done, in a sentence or two.
        run: of ``read_run``.
        gallery: the pictures; without them the page has curves and tables.
    """
    style = "" if gallery is None else map_style(MAP, gallery.classes)
    body = (
        tag("header", tag("h1", title), tag("p", lead), headline(run.results)),
        tag("main", *_parts(run, gallery)),
        tag("footer", f"Made by dsf from {run.folder}."),
    )
    return document(title, body, style)


def _parts(run: Run, gallery: Gallery | None) -> Iterator[Markup]:
    for problem in run.problems:
        yield note(problem)
    yield accuracy_section(run.results, None if gallery is None else len(gallery.classes))
    epochs = run.config.get("epochs")
    yield curves_section(run, epochs if isinstance(epochs, int) else None)
    if gallery is not None:
        yield views_section(gallery)
        yield neighbours_section(gallery)
        yield maps_section(gallery)
    yield cost_section(run.results)
    yield pairs_section(
        "settings",
        "Settings",
        "All settings of the run; each can be given to dsf train as key=value.",
        run.config,
        "config.yaml holds no settings.",
    )
    yield pairs_section(
        "environment",
        "Environment",
        "What it ran on.",
        run.environment,
        "environment.json holds nothing.",
    )


def cost_section(results: Mapping[str, Any]) -> Markup:
    """What the training took."""
    known = as_mapping(results.get("training"))
    values: dict[str, object] = {}
    for name, key, form in (
        ("images seen", "images", _count),
        ("views made", "views", _count),
        ("training time", "device_seconds", duration),
        ("highest memory", "peak_memory_bytes", lambda size: f"{number(size / 2**30)} GiB"),
        ("processes", "processes", _count),
    ):
        if math.isfinite(amount := as_float(known.get(key))):
            values[name] = form(amount)
    return pairs_section(
        "cost",
        "Cost",
        "What the training took, evaluation and installation aside. An image counts each time it "
        "is seen.",
        values,
        "results.json holds no cost: it is written when the training ends.",
    )


def pairs_section(
    identifier: str, heading: str, text: str, values: Mapping[str, object], missing: str
) -> Markup:
    """Names and values, such as settings; ``missing`` is said if there are none."""
    content = pairs(dict(flattened(values))) if values else note(missing)
    return section(identifier, heading, tag("p", text), content)


def _count(value: float) -> str:
    return f"{round(value):,}"
