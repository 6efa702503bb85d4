"""The parts of a page about a run: what each shows, and what one should see in it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor

from dsf.experiments.page.chart import Series, line_chart
from dsf.experiments.page.document import figure, note, section
from dsf.experiments.page.features import Look
from dsf.experiments.page.maps import feature_map, map_legend
from dsf.experiments.page.markup import Markup, join, tag
from dsf.experiments.page.numbers import duration, number, percent, points
from dsf.experiments.page.pictures import from_tensor, image, neighbour_strip
from dsf.experiments.page.run import Run, as_float
from dsf.experiments.page.tables import flattened, pairs, shown, table

UNTRAINED = "untrained-"  # before the name of an evaluation in results.json
MAP = "map"  # the id of the legend of the maps


class Accuracy(NamedTuple):
    """A share of test images, before and after training; NaN where it was not measured."""

    name: str
    before: float
    after: float
    protocol: Mapping[str, Any]


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


def accuracies(results: Mapping[str, Any]) -> list[Accuracy]:
    """What results.json says of kNN and linear accuracy, with and without training."""
    rows = []
    for evaluation, value, name in (
        ("knn", "backbone", "kNN, backbone"),
        ("knn", "projection", "kNN, projection"),
        ("linear", "accuracy", "linear classifier"),
    ):
        after, before = (_object(results.get(key)) for key in (evaluation, UNTRAINED + evaluation))
        found = Accuracy(
            name,
            as_float(before.get(value)),
            as_float(after.get(value)),
            _object(after.get("protocol") or before.get("protocol")),
        )
        if not (math.isnan(found.before) and math.isnan(found.after)):
            rows.append(found)
    return rows


def accuracy_section(results: Mapping[str, Any], classes: int | None) -> Markup:
    """The table of accuracies."""
    rows = accuracies(results)
    if not rows:
        return section("accuracy", "Accuracy", note("results.json holds no kNN and no linear."))
    chance = "" if not classes else f" Guessing would give {percent(1 / classes)}."
    return section(
        "accuracy",
        "Accuracy",
        tag(
            "p",
            "The share of test images whose class is named rightly from the features of the "
            "frozen encoder, which was trained without labels. kNN lets the nearest training "
            "images vote; the linear classifier is trained on the features. Both should end above "
            f"where they began.{chance}",
        ),
        table(
            "Accuracy on the test images",
            ("", "before training", "after training", "gain, points"),
            [
                (
                    join((row.name, tag("small", _summary(row.protocol)))),
                    _bar(row.before, "before"),
                    _bar(row.after, "after"),
                    _or_dash(points, row.after - row.before),
                )
                for row in rows
            ],
            numbers=(1, 2, 3),
        ),
        _protocols(results),
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


def views_section(sheet: Image.Image | None, views: int) -> Markup:
    """The sheet of views."""
    heading = "Views"
    if sheet is None:
        return section("views", heading, note("There are no pictures of views."))
    text = (
        "Each row: a training image, then views of it as the encoder sees them, cropped, recoloured"
        " and distorted at random. The encoder learns that the views of a row belong together. You "
        "should still recognise most of them."
    )
    picture = image(sheet, f"Rows of one training image and {views} random views of it each.")
    return section("views", heading, tag("p", text), tag("div", picture, class_="sheet"))


def neighbours_section(
    before: Look | None,
    after: Look | None,
    train_images: Tensor,
    train_labels: Tensor,
    query_images: Tensor,
    query_labels: Tensor,
    classes: Sequence[str],
) -> Markup:
    """The nearest training images of a few test images.

    Args:
        before: the untrained encoder.
        after: the trained one.
        train_images: (N, 3, H, W) in uint8.
        train_labels: (N,).
        query_images: (Q, 3, H, W) in uint8.
        query_labels: (Q,).
        classes: the names of the labels.
    """
    heading = "Nearest neighbours"
    looks = [("before training", before), ("after training", after)]
    there = [(name, look) for name, look in looks if look is not None]
    if not there:
        return section("neighbours", heading, note("The features were not looked at."))
    shares = " and ".join(f"{percent(look.agreement)} {name}" for name, look in there)
    k = there[0][1].neighbours.shape[1]
    rows = []
    for row, (pixels, label) in enumerate(zip(query_images, query_labels.tolist(), strict=True)):
        truth = classes[label]
        cells = []
        for name, look in there:
            found = look.neighbours[row]
            names = [classes[number] for number in train_labels[found].tolist()]
            right = sum(name == truth for name in names)
            count = tag("p", f"{name}: {right} of {k} right", class_="count")
            cells.append(tag("td", count, neighbour_strip(train_images[found], names, truth)))
        query = image(from_tensor(pixels), f"test image, {truth}")
        rows.append(tag("tr", tag("th", query, tag("span", truth), scope="row"), *cells))
    header = ("test image", *(name for name, _ in there))
    return section(
        "neighbours",
        heading,
        tag(
            "p",
            "The first test image of each class, and the training images whose features are "
            "nearest to it. \N{CHECK MARK} and a frame mark the same class, \N{MULTIPLICATION X} "
            "another. Before training the neighbours share colour and brightness; after it "
            f"more of them should show the same kind of thing. Of the {k} nearest neighbours of "
            f"all test images, {shares} have the right class.",
        ),
        tag(
            "table",
            tag("caption", "Nearest training images", class_="hidden"),
            tag("thead", tag("tr", *(tag("th", name, scope="col") for name in header))),
            tag("tbody", *rows),
            class_="neighbours",
        ),
    )


def maps_section(
    before: Look | None, after: Look | None, labels: Tensor, classes: Sequence[str]
) -> Markup:
    """The maps of the features."""
    heading = "Map of the features"
    looks = {"Before training": before, "After training": after}
    figures = []
    for title, look in looks.items():
        if look is not None:
            identifier = f"{MAP}-{title.split()[0].lower()}"
            picture = feature_map(
                identifier,
                f"{title}: features of the test images",
                f"{len(labels)} points in {len(classes)} colours and shapes, one a class.",
                look.plane.coordinates,
                labels,
                classes,
            )
            share = (
                f"{percent(look.separation)} of the variance of all features lies between the "
                f"means of the classes; this plane shows {percent(look.plane.share)} of it all."
            )
            figures.append(figure(picture, share, heading=title))
    if not figures:
        return section("maps", heading, note("The features were not looked at."))
    text = (
        "A small mark is a test image, a large one the mean of its class; the plane is that of the "
        "two directions in which the features vary most. After training the means should lie "
        "further apart, and the variance between them should be a larger part of the whole. "
        "Classes overlap where the encoder confuses them, or where the plane does not show the "
        "difference. Choose a class to see it alone."
    )
    return section(
        "maps",
        heading,
        tag("p", text),
        tag("div", map_legend(MAP, classes), tag("div", *figures, class_="grid"), class_="maps"),
    )


def cost_section(results: Mapping[str, Any]) -> Markup:
    """What the training took."""
    known = _object(results.get("training"))
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


def _curve(run: Run, curve: Curve) -> Markup:
    means = Series("mean of the epoch", run.series("epoch", curve.metric))
    steps = Series("within the epoch", run.series("step", curve.metric), faint=True)
    return _chart(curve.metric.replace("_", "-"), curve, (steps, means))


def _knn_curve(run: Run) -> Markup:
    untrained = _object(run.results.get(f"{UNTRAINED}knn"))
    series = []
    for name in ("backbone", "projection"):
        line = run.series("knn", name, scale=100)
        begin = 100 * as_float(untrained.get(name))
        if math.isfinite(begin) and not any(x <= 0 for x, _ in line):
            line.insert(0, (0.0, begin))
        series.append(Series(name, line))
    epoch_0 = " Epoch 0 is the untrained encoder." if untrained else ""
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


def _bar(share: float, style: str) -> Markup:
    if not math.isfinite(share):
        return tag("span", "\N{EN DASH}")
    width = f"width: {100 * min(max(share, 0.0), 1.0):.1f}%"
    bar = tag("span", tag("span", class_=style, style=width), class_="bar", aria_hidden="true")
    return join((percent(share), bar))


def _or_dash(form: Any, value: float) -> str:
    return form(value) if math.isfinite(value) else "\N{EN DASH}"


def _summary(protocol: Mapping[str, Any]) -> object:
    """What a protocol says of itself, or all of it."""
    whole = ", ".join(f"{name} = {shown(value)}" for name, value in flattened(protocol))
    return protocol.get("method", whole)


def _protocols(results: Mapping[str, Any]) -> Markup | None:
    parts = []
    for name, result in results.items():
        protocol = _object(_object(result).get("protocol"))
        if protocol and name in ("knn", "linear"):
            parts += [tag("h3", name), pairs(dict(flattened(protocol)))]
    if not parts:
        return None
    return tag("details", tag("summary", "The protocols in full"), *parts)


def _count(value: float) -> str:
    return f"{round(value):,}"


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
