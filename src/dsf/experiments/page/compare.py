"""Settings, environment and cost: of one run, or where several differ."""

import math
import statistics
from collections.abc import Mapping

from dsf.experiments.page.document import note, section
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.numbers import duration, number
from dsf.experiments.page.run import Run, Runs, as_float, as_mapping
from dsf.experiments.page.tables import DASH, breakable, flattened, pairs, shown, table


def settings_section(runs: Runs) -> Markup:
    """The settings of a run, or those by which runs differ."""
    text = "All settings of the run; each can be given to dsf train as key=value."
    if len(runs) > 1:
        text = "What the runs were told differently."
    values = {label: run.config for label, run in runs.items()}
    return _section("settings", "Settings", text, values, "config.yaml holds no settings.")


def environment_section(runs: Runs) -> Markup:
    """What the runs ran on."""
    values = {label: run.environment for label, run in runs.items()}
    missing = "environment.json holds nothing."
    return _section("environment", "Environment", "What it ran on.", values, missing)


def cost_section(runs: Runs) -> Markup:
    """What the training took."""
    found = {label: _cost(run) for label, run in runs.items()}
    text = (
        "What the training took, evaluation and installation aside. An image counts each time it "
        "is seen."
    )
    missing = "results.json holds no cost: it is written when the training ends."
    without = [label for label, cost in found.items() if "training time" not in cost]
    content: list[Markup] = []
    if len(runs) == 1:
        (cost,) = found.values()
        content = [note(missing)] if without else []
        content += [pairs(cost)] if cost else []
    elif any(found.values()):
        names = dict.fromkeys(name for cost in found.values() for name in cost)
        rows = [(name, *(found[label].get(name, DASH) for label in found)) for name in names]
        caption = "What the training took"
        content = [table(caption, ("", *found), rows, numbers=range(1, len(found) + 1))]
        content += [note(f"{label}: {missing}") for label in without]
    else:
        content = [note(missing)]
    return section("cost", "Throughput and memory", tag("p", text), *content)


def _cost(run: Run) -> dict[str, object]:
    known = as_mapping(run.results.get("training"))
    values: dict[str, object] = {}
    for name, key, form in (
        ("training time", "device_seconds", duration),
        ("highest memory", "peak_memory_bytes", lambda size: f"{number(size / 2**30)} GiB"),
        ("images seen", "images", _count),
        ("views made", "views", _count),
        ("processes", "processes", _count),
    ):
        if math.isfinite(amount := as_float(known.get(key))):
            values[name] = form(amount)
    speeds = [value for _, value in run.series("step", "images_per_s") if math.isfinite(value)]
    if speeds:
        speed = statistics.median(speeds)
        values["images a second, median"] = number(speed)
        if math.isfinite(run.views):
            values["views a second"] = number(speed * run.views)
    return values


def _section(
    identifier: str,
    heading: str,
    text: str,
    values: Mapping[str, Mapping[str, object]],
    missing: str,
) -> Markup:
    flat = {label: dict(flattened(found)) for label, found in values.items() if found}
    parts = [tag("p", text)] if flat else []
    if len(values) == 1:
        parts += [pairs(found) for found in flat.values()] or [note(missing)]
        return section(identifier, heading, *parts)
    parts += [note(f"{label}: {missing}") for label in values if label not in flat]
    names = list(dict.fromkeys(name for found in flat.values() for name in found))
    # An empty mapping says nothing beside the entries that others have in its place.
    names = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    absent = object()
    differing, common = [], {}
    for name in names:
        of_name = [found.get(name, absent) for found in flat.values()]
        if all(value == of_name[0] for value in of_name):
            common[name] = of_name[0]
        else:
            differing.append(
                (breakable(name), *(DASH if value is absent else shown(value) for value in of_name))
            )
    if differing:
        parts.append(table(f"{heading} that differ", ("", *flat), differing, numbers=()))
    elif len(flat) > 1:
        parts.append(tag("p", "There is no difference."))
    if common:
        summary = f"{len(common)} that are the same" if len(flat) > 1 else "All of them"
        parts.append(tag("details", tag("summary", summary), pairs(common)))
    return section(identifier, heading, *parts)


def _count(value: float) -> str:
    return f"{round(value):,}"
