"""Curves as SVG: series in, markup out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dsf.experiments.page.axis import Axis, fitted_axis, nice_axis, tick_labels
from dsf.experiments.page.markup import Markup, join, tag
from dsf.experiments.page.numbers import number

Point = tuple[float, float]

WIDTH, HEIGHT = 460, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 30, 44
_MARKED = 80  # more points than this are a line without marks
_DRAWN = 600  # a line of more points than this is wider than the picture has pixels


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Args:
        name: for the legend.
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
    identifier: str,
    title: str,
    description: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    whole: bool = True,
) -> Markup:
    """Lines over a common axis, at most four; each has a colour, a dash and a mark of its own.

    Values show where the pointer rests on a mark.

    Args:
        identifier: unique on the page; the start of the ids inside.
        title: what a screen reader says first.
        description: and then.
        series: lines, of which at least one has a point that can be drawn.
        x_label: below the x axis, which begins at 0.
        y_label: above the y axis.
        whole: ticks of the x axis are whole numbers.
    """
    drawn = [line for line in series if line.finite]
    if not drawn:
        raise ValueError(f"series: the chart {title!r} has no finite value to draw")
    xs = [x for line in drawn for x, _ in line.finite]
    x_axis = fitted_axis(min(0.0, *xs), max(1.0, *xs), _LEFT, WIDTH - _RIGHT, 6, whole)
    y_axis = nice_axis(
        (y for line in drawn for _, y in line.finite), HEIGHT - _BOTTOM, _TOP, ticks=4
    )
    styled, plain = [], 0
    for line in drawn:
        styled.append((line, "faint" if line.faint else f"s{plain % 4}"))
        plain += not line.faint
    return tag(
        "svg",
        tag("title", title, id=f"{identifier}-title"),
        tag("desc", description, id=f"{identifier}-desc"),
        _frame(x_axis, y_axis, x_label, y_label),
        *(_line(line, style, x_axis, y_axis, x_label) for line, style in styled if line.faint),
        *(_line(line, style, x_axis, y_axis, x_label) for line, style in styled if not line.faint),
        _legend(styled) if len(styled) > 1 else None,
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{identifier}-title {identifier}-desc",
    )


def coordinate(value: float) -> str:
    """A coordinate to a tenth of a unit, which nobody sees.

    Example:
        >>> coordinate(12.04), coordinate(-0.01), coordinate(3.25)
        ('12', '0', '3.2')
    """
    short = f"{value:.1f}"
    return "0" if short in ("0.0", "-0.0") else short.removesuffix(".0")


def mark(shape: int, x: float, y: float, size: float = 3.4, **attributes: Any) -> Markup:
    """A mark around a point; ``shape`` counts through circle, square, triangle and diamond."""
    return tag("path", d=mark_outline(shape, x, y, size), **attributes)


def mark_outline(shape: int, x: float, y: float, size: float) -> str:
    """The outline of a mark, closed, all of about the same area."""
    outlines = (
        _ring(x, y, size),
        _polygon(x, y, size * 0.9, ((-1, -1), (1, -1), (1, 1), (-1, 1))),
        _polygon(x, y, size * 1.2, ((0, -1), (0.95, 0.75), (-0.95, 0.75))),
        _polygon(x, y, size * 1.25, ((0, -1), (1, 0), (0, 1), (-1, 0))),
        _polygon(x, y, size * 1.2, ((0, 1), (0.95, -0.75), (-0.95, -0.75))),
    )
    return outlines[shape % len(outlines)]


def _ring(x: float, y: float, radius: float) -> str:
    r = coordinate(radius)
    d = coordinate(2 * float(r))
    return f"M{coordinate(x - radius)} {coordinate(y)}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0-{d} 0z"


def _polygon(x: float, y: float, size: float, corners: Sequence[Point]) -> str:
    steps = (f"{coordinate(x + size * a)} {coordinate(y + size * b)}" for a, b in corners)
    return "M" + "L".join(steps) + "z"


def _frame(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> Markup:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for tick, label in zip(y_axis.ticks, tick_labels(y_axis.ticks), strict=True):
        y = coordinate(y_axis(tick))
        style = "axis" if tick == y_axis.low else "grid"
        parts.append(tag("line", x1=_LEFT, x2=right, y1=y, y2=y, class_=style))
        parts.append(tag("text", label, x=_LEFT - 8, y=y, dy="0.35em", text_anchor="end"))
    for tick, label in zip(x_axis.ticks, tick_labels(x_axis.ticks), strict=True):
        x = coordinate(x_axis(tick))
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, class_="axis"))
        parts.append(tag("text", label, x=x, y=bottom + 20, text_anchor="middle"))
    parts.append(tag("text", x_label, x=right, y=HEIGHT - 6, text_anchor="end", class_="label"))
    parts.append(tag("text", y_label, x=4, y=14, class_="label"))
    return tag("g", *parts, class_="frame")


def _line(series: Series, style: str, x_axis: Axis, y_axis: Axis, x_label: str) -> Markup:
    points = thinned(series.points, _DRAWN)
    path, marks, pen = [], [], "M"
    for x, y in points:
        if not (math.isfinite(x) and math.isfinite(y)):
            pen = "M"
            continue
        path.append(f"{pen}{coordinate(x_axis(x))} {coordinate(y_axis(y))}")
        pen = "L"
    shape = 0 if series.faint else int(style[1:])
    if not series.faint and len(series.finite) <= _MARKED:
        for x, y in series.finite:
            label = f"{series.name}, {x_label} {x:g}: {number(y, 4)}"
            at = x_axis(x), y_axis(y)
            reach = tag("circle", cx=coordinate(at[0]), cy=coordinate(at[1]), r=10, class_="reach")
            marks.append(tag("g", tag("title", label), reach, mark(shape, *at)))
    return tag("g", tag("path", d="".join(path), class_="line"), *marks, class_=style)


def thinned(points: Sequence[Point], limit: int) -> list[Point]:
    """At most ``limit`` points: every n-th, and always the last."""
    if len(points) <= limit:
        return list(points)
    every = math.ceil(len(points) / (limit - 1))
    kept = list(points[::every])
    return kept if (len(points) - 1) % every == 0 else [*kept, points[-1]]


def _legend(lines: Sequence[tuple[Series, str]]) -> Markup:
    """Names at the right of the top line; 7.2 units a letter are wide enough."""
    parts: list[Markup] = []
    right = float(WIDTH - _RIGHT)
    for line, style in reversed(lines):
        left = right - 7.2 * len(line.name) - 30
        sample = f"M{coordinate(left)} 10H{coordinate(left + 24)}"
        parts.append(
            tag(
                "g",
                tag("path", d=sample, class_="line"),
                None if line.faint else mark(int(style[1:]), left + 12, 10),
                tag("text", line.name, x=coordinate(left + 29), y=14),
                class_=style,
            )
        )
        right = left - 12
    return tag("g", join(reversed(parts)), class_="legend")
