"""Accuracies before and after training."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from dsf.experiments.page.document import note, section
from dsf.experiments.page.markup import Markup, join, tag
from dsf.experiments.page.numbers import percent, points
from dsf.experiments.page.run import as_float, as_mapping
from dsf.experiments.page.tables import flattened, pairs, shown, table

UNTRAINED = "untrained-"  # before the name of an evaluation in results.json
_DASH = "\N{EN DASH}"  # where nothing was measured


class Accuracy(NamedTuple):
    """A share of test images, before and after training; NaN where it was not measured."""

    name: str
    before: float
    after: float
    protocol: Mapping[str, Any]


def accuracies(results: Mapping[str, Any]) -> list[Accuracy]:
    """What results.json says of kNN and linear accuracy, with and without training."""
    rows = []
    for evaluation, value, name in (
        ("knn", "backbone", "kNN, backbone"),
        ("knn", "projection", "kNN, projection"),
        ("linear", "accuracy", "linear classifier"),
    ):
        after, before = (
            as_mapping(results.get(key)) for key in (evaluation, UNTRAINED + evaluation)
        )
        found = Accuracy(
            name,
            as_float(before.get(value)),
            as_float(after.get(value)),
            as_mapping(after.get("protocol") or before.get("protocol")),
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
                    _gain(row.after - row.before),
                )
                for row in rows
            ],
            numbers=(1, 2, 3),
        ),
        _protocols(results),
    )


def headline(results: Mapping[str, Any]) -> Markup | None:
    """What one wants to know first: kNN and linear accuracy, large."""
    cards = []
    for row in accuracies(results):
        if row.name in _HEADLINE and math.isfinite(row.after):
            gain = row.after - row.before
            known = math.isfinite(gain)
            before = tag("small", f"{percent(row.before)} \N{RIGHTWARDS ARROW} ")
            cards.append(
                tag(
                    "li",
                    tag("span", _HEADLINE[row.name]),
                    tag("b", before if known else None, percent(row.after)),
                    tag("span", f"{points(gain)} points") if known else None,
                )
            )
    return tag("ul", *cards, class_="hero") if cards else None


_HEADLINE = {
    "kNN, backbone": "kNN accuracy on test images",
    "linear classifier": "linear accuracy on test images",
}


def _bar(share: float, style: str) -> Markup:
    if not math.isfinite(share):
        return tag("span", _DASH)
    width = f"width: {100 * min(max(share, 0.0), 1.0):.1f}%"
    bar = tag("span", tag("span", class_=style, style=width), class_="bar", aria_hidden="true")
    return join((percent(share), bar))


def _gain(difference: float) -> str:
    return points(difference) if math.isfinite(difference) else _DASH


def _summary(protocol: Mapping[str, Any]) -> object:
    """What a protocol says of itself, or all of it."""
    whole = ", ".join(f"{name} = {shown(value)}" for name, value in flattened(protocol))
    return protocol.get("method", whole)


def _protocols(results: Mapping[str, Any]) -> Markup | None:
    parts = []
    for name, result in results.items():
        protocol = as_mapping(as_mapping(result).get("protocol"))
        if protocol and name in ("knn", "linear"):
            parts += [tag("h3", name), pairs(dict(flattened(protocol)))]
    if not parts:
        return None
    return tag("details", tag("summary", "The protocols in full"), *parts)
