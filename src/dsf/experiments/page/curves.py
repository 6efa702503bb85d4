"""Metrics over the epochs, and what one should see in them."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dsf.experiments.page.accuracy import UNTRAINED
from dsf.experiments.page.chart import Band, Point, Series, line_chart
from dsf.experiments.page.document import figure, note, section
from dsf.experiments.page.figures import Figures
from dsf.experiments.page.lack import Lack
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.numbers import number
from dsf.experiments.page.run import Run, Runs, as_float, as_mapping, whose

_KAPPA = "\N{GREEK SMALL LETTER KAPPA}"
_LISTED = 6  # the ends of more lines than this are read off the chart


class Curve(NamedTuple):
    """A metric that is drawn over epochs."""

    metric: str
    heading: str
    axis: str
    meaning: str


CURVES = (
    Curve(
        "loss",
        "Loss",
        "loss",
        "How hard it is to tell an image's own views from those of other images. It should fall; "
        "losses of different methods are not to be compared.",
    ),
    Curve(
        "margin",
        "Margin",
        "similarity",
        "Similarity to an image's own views, less the mean similarity to other images. It should "
        "rise; a margin that stays at zero means that all images look the same.",
    ),
    Curve(
        "kappa_mean",
        "Concentration",
        f"mean {_KAPPA}",
        f"How closely the views of one image lie together: the mean {_KAPPA} "
        "of their distributions. Where it rises with the margin, the encoder learns what the "
        "views of an image share.",
    ),
)
_SPEED = Curve(
    "images_per_s",
    "Throughput",
    "images a second",
    "How many images were trained on in a second, all views of each, between two lines of the log.",
)


def curves_section(runs: Runs, figures: Figures, lacks: Mapping[str, Lack]) -> Markup:
    """Loss, kNN, margin, kappa and throughput over the epochs."""
    loss, margin, kappa = CURVES
    charts = (
        _metric(runs, loss, figures),
        _knn(runs, figures, lacks),
        _metric(runs, margin, figures),
        _metric(runs, kappa, figures, _band(runs)),
        _speed(runs, figures),
    )
    how = "Rest the pointer on a chart, or tap it, to read the values."
    notes = (line for label, run in runs.items() for line in _notes(run, whose(runs, label)))
    return section("curves", "Training", tag("p", how), *notes, tag("div", *charts, class_="grid"))


def _notes(run: Run, whose_run: str) -> list[Markup]:
    return [note(f"{whose_run}{line.get('text', '')}") for line in run.lines("warning")]


def _metric(runs: Runs, curve: Curve, figures: Figures, band: Band = ()) -> Markup:
    if len(runs) > 1:
        lines = [Series(label, _points(run, curve.metric)) for label, run in runs.items()]
        return _chart(curve, lines, figures)
    (run,) = runs.values()
    means = Series("mean of the epoch", run.series("epoch", curve.metric))
    steps = Series("within the epoch", run.series("step", curve.metric), faint=True)
    return _chart(curve, (means, steps), figures, band)


def _points(run: Run, metric: str) -> list[Point]:
    """Means of epochs; of a run that has not finished one, its steps."""
    return run.series("epoch", metric) or run.series("step", metric)


def _band(runs: Runs) -> Band:
    """The least and the largest kappa of a single run; several would hide each other."""
    if len(runs) > 1:
        return ()
    (run,) = runs.values()
    low, high = (dict(run.series("epoch", f"kappa_{end}")) for end in ("min", "max"))
    both = [(x, low[x], high[x]) for x in low if x in high]
    return both if len(both) > 1 else ()


def _speed(runs: Runs, figures: Figures) -> Markup:
    several = len(runs) > 1
    lines = [
        Series(label if several else "images a second", run.series("step", _SPEED.metric))
        for label, run in runs.items()
    ]
    return _chart(_SPEED, lines, figures)


def _knn(runs: Runs, figures: Figures, lacks: Mapping[str, Lack]) -> Markup:
    if len(runs) > 1:
        lines = [Series(label, _knn_points(run, "backbone")) for label, run in runs.items()]
        by = "by their features"
    else:
        (run,) = runs.values()
        lines = [Series(name, _knn_points(run, name)) for name in ("backbone", "projection")]
        by = "by the features and by their projection"
    untrained_shown = any(x <= 0 for line in lines for x, _ in line.points)
    epoch_0 = " Epoch 0 is the untrained encoder." if untrained_shown else ""
    meaning = (
        "How many test images the vote of their nearest training images names rightly, "
        f"{by}. It should rise.{epoch_0}"
    )
    none = lacks.keys() >= runs.keys()  # could be watched
    reason = "; ".join(dict.fromkeys(lacks[label].reason for label in runs)) if none else ""
    curve = Curve("kNN", "kNN accuracy", "per cent", meaning)
    return _chart(curve, lines, figures, reason=reason)


def _knn_points(run: Run, name: str) -> list[Point]:
    line = run.series("knn", name, scale=100)
    begin = 100 * as_float(as_mapping(run.results.get(f"{UNTRAINED}knn")).get(name))
    if line and math.isfinite(begin) and not any(x <= 0 for x, _ in line):
        line.insert(0, (0.0, begin))
    return line


def _chart(
    curve: Curve, series: Sequence[Series], figures: Figures, band: Band = (), reason: str = ""
) -> Markup:
    there = [line for line in series if line.finite]
    if not there:
        why = f": {reason}" if reason else ""
        missing = note(f"metrics.jsonl holds no {curve.metric} that can be drawn{why}.")
        return figure(missing, curve.meaning, heading=curve.heading)
    plain = [line for line in there if not line.faint] or there[:1]
    lost = sum(line.lost for line in series)
    gaps = f" Left out, since not finite: {lost} of the values." if lost else ""
    range_of = f" The area spans the least and the largest {_KAPPA}." if band else ""
    ends = {line.name: _change(line) for line in plain}
    absent = [line.name for line in series if not line.faint and not line.finite]
    without = f" Without values: {', '.join(absent)}." if absent else ""
    chart = line_chart(
        curve.metric.replace("_", "-").lower(),
        curve.heading,
        f"First and last values: {'; '.join(map(' '.join, ends.items()))}.{gaps}",
        series,
        "epoch",
        curve.axis,
        band=band,
    )
    change = [tag("span", tag("strong", text), f" {name}. ") for name, text in ends.items()]
    return figure(
        figures.draw(chart),
        tag("span", *change, class_="ends") if len(change) <= _LISTED else None,
        f"{curve.meaning}{range_of}{gaps}{without}",
        heading=curve.heading,
    )


def _change(line: Series) -> str:
    """The first and the last value."""
    first, last = (number(line.finite[end][1]) for end in (0, -1))
    return first if len(line.finite) == 1 else f"{first} \N{RIGHTWARDS ARROW} {last}"
