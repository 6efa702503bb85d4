"""Metrics over the epochs, and what one should see in them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dsf.experiments.page.accuracy import UNTRAINED
from dsf.experiments.page.chart import Series, line_chart
from dsf.experiments.page.document import figure, note, section
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.numbers import number
from dsf.experiments.page.run import Run, as_float, as_mapping


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
        "How hard it is to tell an image's own views from those of other images. It should fall.",
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
        "mean \N{GREEK SMALL LETTER KAPPA}",
        "How closely the views of one image lie together: the mean \N{GREEK SMALL LETTER KAPPA} "
        "of their distributions. Where it rises with the margin, the encoder learns what the "
        "views of an image share.",
    ),
)


def curves_section(run: Run, epochs: int | None = None) -> Markup:
    """Loss, kNN, margin and kappa over the epochs; ``epochs`` is how many were wanted."""
    loss, *others = (_curve(run, curve) for curve in CURVES)
    reached = max((x for x, _ in run.series("epoch", "epoch") if math.isfinite(x)), default=0)
    warnings = (note(line.get("text", "")) for line in run.lines("warning"))
    stopped = None
    if epochs is not None and run.metrics and reached < epochs:
        stopped = note(f"The run has {reached:g} of {epochs} epochs: it is not finished.")
    return section(
        "curves",
        "Training",
        tag("p", "Rest the pointer on a mark to read its value."),
        stopped,
        *warnings,
        tag("div", loss, _knn_curve(run), *others, class_="grid"),
    )


def _curve(run: Run, curve: Curve) -> Markup:
    means = Series("mean of the epoch", run.series("epoch", curve.metric))
    steps = Series("within the epoch", run.series("step", curve.metric), faint=True)
    return _chart(curve.metric.replace("_", "-"), curve, (steps, means))


def _knn_curve(run: Run) -> Markup:
    untrained = as_mapping(run.results.get(f"{UNTRAINED}knn"))
    series = []
    for name in ("backbone", "projection"):
        line = run.series("knn", name, scale=100)
        begin = 100 * as_float(untrained.get(name))
        if line and math.isfinite(begin) and not any(x <= 0 for x, _ in line):
            line.insert(0, (0.0, begin))
        series.append(Series(name, line))
    untrained_shown = any(x <= 0 for line in series for x, _ in line.points)
    epoch_0 = " Epoch 0 is the untrained encoder." if untrained_shown else ""
    meaning = (
        "How many test images the vote of their nearest training images names rightly, by the "
        f"features and by their projection. It should rise.{epoch_0}"
    )
    return _chart("knn", Curve("kNN", "kNN accuracy", "per cent", meaning), series)


def _chart(identifier: str, curve: Curve, series: Sequence[Series]) -> Markup:
    there = [line for line in series if line.finite]
    if not there:
        missing = note(f"metrics.jsonl holds no {curve.metric} that can be drawn.")
        return figure(missing, curve.meaning, heading=curve.heading)
    main = next((line for line in there if not line.faint), there[0])
    (_, first), (_, last) = main.finite[0], main.finite[-1]
    change = f"{number(first)} \N{RIGHTWARDS ARROW} {number(last)}"
    lost = sum(line.lost for line in series)
    gaps = f" Left out, since not finite: {lost} of the values." if lost else ""
    description = f"{main.name}, first and last: {number(first)} and {number(last)}.{gaps}"
    picture = line_chart(identifier, curve.heading, description, there, "epoch", curve.axis)
    return figure(
        picture,
        tag("strong", change),
        f" ({main.name}, first and last). {curve.meaning}{gaps}",
        heading=curve.heading,
    )
