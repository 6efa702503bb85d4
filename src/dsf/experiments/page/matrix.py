"""Confusion matrices: which classes are taken for which."""

from collections.abc import Sequence
from typing import Any

from dsf.experiments.page.vega import Chart

_COUNTED = 12  # up to so many classes the counts are written into the cells
_NAMED = 40  # and up to so many the classes beside them
_LARGEST = 420  # pixels


def matrix_chart(
    name: str, title: str, counts: Sequence[Sequence[int]], classes: Sequence[str]
) -> Chart:
    """A row for each true class, a column for each that was named instead.

    Args:
        name: of the chart.
        title: what it shows.
        counts: images, of a true class a row.
        classes: their names, unlike each other.
    """
    rows = []
    for truth, row in zip(classes, counts, strict=True):
        total = sum(row)
        for named, count in zip(classes, row, strict=True):
            if count:
                share = count / total
                tip = {"true": truth, "named": named, "images": f"{count:,} of {total:,}"}
                cell = {"true": truth, "named": named, "count": count, "share": round(share, 4)}
                rows.append({**cell, "tip": tip})
    right = sum(counts[n][n] for n in range(len(classes)))
    total = sum(map(sum, counts))
    order = list(classes)
    axis: dict[str, Any] = {
        "labels": len(classes) <= _NAMED,
        "labelLimit": 90,
        "ticks": False,
        "domain": False,
        "grid": False,
    }
    x = {
        "field": "named",
        "type": "nominal",
        "scale": {"domain": order},
        "title": "named",
        "axis": axis | {"labelAngle": -45},
    }
    y = {
        "field": "true",
        "type": "nominal",
        "scale": {"domain": order},
        "title": "true class",
        "axis": axis,
    }
    cells = {
        "mark": {"type": "rect", "color": "var(--accent)"},
        "encoding": {
            "x": x,
            "y": y,
            "opacity": {
                "field": "share",
                "type": "quantitative",
                "scale": {"domain": [0, 1], "range": [0.04, 0.75]},
                "legend": None,
            },
            "tooltip": {"field": "tip"},
        },
    }
    layers = [cells]
    if len(classes) <= _COUNTED:
        layers.append(
            {
                "mark": {"type": "text", "fontSize": 10, "color": "var(--ink)", "aria": False},
                "encoding": {"x": x, "y": y, "text": {"field": "count"}},
            }
        )
    return Chart(
        name,
        title,
        f"{right:,} of {total:,} images lie on the diagonal.",
        {"data": {"values": rows}, "layer": layers},
        height=min(_LARGEST, 24 * len(classes) + 60),
    )
