"""Bars: a group for each thing that is measured, a bar in it for each run."""

import math
from collections.abc import Mapping, Sequence

from dsf.experiments.page.numbers import number
from dsf.experiments.page.vega import COLOURS, Chart, legend_of

_BAR = 11  # pixels
_GROUP = 8  # pixels between groups


def bar_chart(
    name: str,
    title: str,
    description: str,
    values: Mapping[str, Mapping[str, float]],
    label: str,
    unit: str = "",
) -> Chart:
    """Bars from the left, the longest names of groups beside them.

    Args:
        name: of the chart.
        title: what it shows.
        description: what a screen reader says of it.
        values: by run, then by group; some groups may be missing, or all of a run's, which
            keeps its colour from the others.
        label: of the axis.
        unit: after a value that is pointed at.
    """
    runs = list(values)
    groups = list(dict.fromkeys(group for found in values.values() for group in found))
    rows = [
        {
            "group": group,
            "run": run,
            "value": round(value, 3),
            "tip": {"run": run, group: f"{number(value, 4)}{unit}"},
        }
        for run, found in values.items()
        for group, value in found.items()
        if math.isfinite(value)
    ]
    if not rows:
        raise ValueError(f"values: the chart {title!r} has no finite value to draw")
    colours = {run: COLOURS[n % len(COLOURS)] for n, run in enumerate(runs)}
    drawn = [run for run in runs if any(row["run"] == run for row in rows)]
    legend = legend_of(drawn) if len(runs) > 1 else None
    spec = {
        "data": {"values": rows},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "y": {"field": "group", "type": "nominal", "sort": groups, "title": None},
            "yOffset": {"field": "run", "type": "nominal", "sort": drawn},
            "x": {
                "field": "value",
                "type": "quantitative",
                "title": label,
                "axis": {"grid": True, "tickCount": 5},
            },
            "color": {
                "field": "run",
                "type": "nominal",
                "scale": {"domain": drawn, "range": [colours[run] for run in drawn]},
                "legend": legend,
            },
            "tooltip": {"field": "tip"},
        },
    }
    return Chart(name, title, description, spec, height=len(groups) * _height(drawn))


def _height(runs: Sequence[str]) -> int:
    return _BAR * max(len(runs), 1) + _GROUP
