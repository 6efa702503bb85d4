"""Lines over a common axis: series in, a Vega-Lite chart out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dsf.experiments.page.numbers import number
from dsf.experiments.page.vega import COLOURS, DASHES, HOVER, SHAPES, Chart, legend_of

Point = tuple[float, float]
Band = Sequence[tuple[float, float, float]]

_MARKED = 30  # more points than this are a line without marks, told apart by its dash
_DRAWN = 600  # a line of more points than this is wider than the picture has pixels


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Args:
        name: for the legend, unlike the others' in the chart.
        points: x and y; where y is not finite the line has a gap.
        faint: drawn thin behind the others and without marks, for single noisy values.
    """

    name: str
    points: Sequence[Point] = field(repr=False)
    faint: bool = False

    @property
    def finite(self) -> list[Point]:
        """The points that can be drawn."""
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]

    @property
    def lost(self) -> int:
        """How many cannot."""
        return len(self.points) - len(self.finite)


def line_chart(
    name: str,
    title: str,
    description: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    whole: bool = True,
    band: Band = (),
) -> Chart:
    """Lines over a common axis; each has a colour, a dash and a mark of its own.

    All values at an x show where the pointer is near it.

    Args:
        name: of the chart, unlike the others' on a page.
        title: what it shows.
        description: what a screen reader says of it.
        series: lines, of which at least one has a point that can be drawn; one that has none
            keeps its colour from the others.
        x_label: below the x axis, which begins at 0.
        y_label: above the y axis.
        whole: ticks of the x axis are whole numbers.
        band: x, low and high of an area behind the lines.
    """
    drawn = [line for line in series if line.finite]
    if not drawn:
        raise ValueError(f"series: the chart {title!r} has no finite value to draw")
    plain = [line for line in drawn if not line.faint]
    # Marks on some lines only would be read as a difference; a single point needs one to be seen.
    marks = all(len(line.finite) <= _MARKED for line in plain)
    marked = [line for line in plain if marks or len(line.finite) == 1]
    style = _Style(series, marks)
    x = {
        "field": "x",
        "type": "quantitative",
        "title": x_label,
        "scale": {"domainMin": 0, "nice": False},
        "axis": _whole_ticks(drawn) if whole else {},
    }
    y = {"field": "y", "type": "quantitative", "title": y_label, "scale": _heights(drawn, band)}
    layers = [_line(line, x, y, style) for line in drawn if line.faint]
    if band:
        layers.insert(0, _band(band, x, y))
    layers += [_line(line, x, y, style) for line in plain]
    layers += [_marks(line, x, y, style) for line in marked]
    layers.append(_hover(plain or drawn, x, x_label))
    return Chart(name, title, description, {"layer": layers})


class _Style:
    """How the lines of a chart differ, and what its legend says: by marks, or else by dashes.

    Lines are counted with those that cannot be drawn, so that a run looks the same in every chart.
    """

    def __init__(self, series: Sequence[Series], marks: bool) -> None:
        plain = [line for line in series if not line.faint]
        drawn = [line for line in plain if line.finite]
        faint = [line for line in series if line.faint and line.finite]
        self._names = [line.name for line in (*drawn, *faint)]
        self._places = [plain.index(line) for line in drawn] + [None] * len(faint)
        self._legend = len(plain) + len(faint) > 1
        self.marks = marks

    def colours(self) -> dict[str, Any]:
        """The colours of the lines, for an encoding."""
        colours = [
            "var(--faint)" if place is None else COLOURS[place % len(COLOURS)]
            for place in self._places
        ]
        return self._encoding(colours)

    def dashes(self) -> dict[str, Any]:
        """Their dashes, for an encoding."""
        return self._encoding([self.dash(name) for name in self._names])

    def shapes(self) -> dict[str, Any]:
        """Their marks, for an encoding."""
        shapes = [
            "stroke" if place is None else SHAPES[place % len(SHAPES)] for place in self._places
        ]
        return self._encoding(shapes)

    def dash(self, name: str) -> list[int]:
        """The dash of a line; where colours come round again it is another."""
        place = self._places[self._names.index(name)] or 0
        return DASHES[(place + place // len(COLOURS)) % len(DASHES)]

    def _encoding(self, values: Sequence[object]) -> dict[str, Any]:
        sample = {} if self.marks else {"symbolType": "stroke", "symbolSize": 400}
        return {
            "field": "series",
            "type": "nominal",
            "scale": {"domain": self._names, "range": list(values)},
            "legend": legend_of(self._names) | sample if self._legend else None,
        }


def _line(
    line: Series, x: Mapping[str, Any], y: Mapping[str, Any], style: _Style
) -> dict[str, Any]:
    points = thinned(line.points, _DRAWN)
    rows = [_row(line.name, at, value) for at, value in points if math.isfinite(at)]
    mark: dict[str, Any] = {
        "type": "line",
        "strokeWidth": 0.9 if line.faint else 2.2,
        "strokeCap": "round",
    }
    encoding = {"x": x, "y": y, "color": style.colours()}
    if style.marks:  # which the legend shows; with dashes around them they would not be known
        mark["strokeDash"] = style.dash(line.name)
    else:
        encoding["strokeDash"] = style.dashes()
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding}


def _marks(
    line: Series, x: Mapping[str, Any], y: Mapping[str, Any], style: _Style
) -> dict[str, Any]:
    rows = [_row(line.name, at, value) for at, value in line.finite]
    encoding = {"x": x, "y": y, "color": style.colours()}
    if style.marks:
        encoding["shape"] = style.shapes()
    return {
        "data": {"values": rows},
        "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
        "encoding": encoding,
    }


def _row(name: str, at: float, value: float) -> dict[str, Any]:
    return {"x": _rounded(at), "y": _rounded(value), "series": name}


def _band(band: Band, x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        {"x": _rounded(at), "y": _rounded(low), "high": _rounded(high)}
        for at, low, high in band
        if all(map(math.isfinite, (at, low, high)))
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "area", "color": COLOURS[0], "opacity": 0.14},
        "encoding": {"x": x, "y": y, "y2": {"field": "high"}},
    }


def _hover(series: Sequence[Series], x: Mapping[str, Any], x_label: str) -> dict[str, Any]:
    """Strips from half way to half way around each x, which show all values there."""
    tips: dict[float, dict[str, str]] = {}
    for line in series:
        for at, value in thinned(line.finite, _DRAWN):
            tip = tips.setdefault(at, {x_label: f"{at:.4g}"})
            tip[line.name] = number(value, 4)
    places = sorted(tips)
    ends = [
        places[0] if len(places) > 1 else places[0] - 0.5,
        *((a + b) / 2 for a, b in pairwise(places)),
        places[-1] if len(places) > 1 else places[0] + 0.5,
    ]
    rows = [
        {"x": _rounded(max(left, 0.0)), "end": _rounded(right), "tip": tips[at]}
        for at, (left, right) in zip(places, pairwise(ends), strict=True)
    ]
    pointed = {"type": "point", "on": "pointerover", "clear": "pointerout"}
    shown = {"condition": {"param": "pointed", "empty": False, "value": 0.12}, "value": 0}
    return {
        "name": HOVER,
        "data": {"values": rows},
        "params": [{"name": "pointed", "select": pointed}],
        "mark": {"type": "rect", "color": "var(--quiet)", "aria": False},
        "encoding": {
            "x": x,
            "x2": {"field": "end"},
            "opacity": shown,
            "tooltip": {"field": "tip"},
        },
    }


def _heights(series: Sequence[Series], band: Band) -> dict[str, Any]:
    """Of the y axis; a single value stands amid others, since alone its tick is a whole number."""
    values = {_rounded(y) for line in series for _, y in line.finite}
    values |= {_rounded(end) for _, *ends in band for end in ends}
    found = [value for value in values if value is not None]
    if len(found) != 1:
        return {"zero": False}
    (only,) = found
    around = abs(only) / 10 or 1.0
    return {"zero": False, "domain": [only - around, only + around]}


def _whole_ticks(series: Sequence[Series]) -> dict[str, Any]:
    """Never half an epoch: up to ten of them each has its tick."""
    last = math.ceil(max(x for line in series for x, _ in line.finite))
    few = {"values": list(range(last + 1))} if 1 <= last <= 10 else {}
    return {"format": ",d", **few}


def thinned(points: Sequence[Point], limit: int) -> list[Point]:
    """At most ``limit`` points: every n-th, and always the last."""
    if len(points) <= limit:
        return list(points)
    every = math.ceil(len(points) / (limit - 1))
    kept = list(points[::every])
    return kept if (len(points) - 1) % every == 0 else [*kept, points[-1]]


def _rounded(value: float) -> float | None:
    """Six digits, more than can be seen; JSON has no other numbers than finite ones."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
