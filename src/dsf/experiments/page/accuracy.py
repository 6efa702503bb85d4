"""Accuracies: before and after training, and of runs side by side."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dsf.experiments.page.changed import run_image_notes
from dsf.experiments.page.document import note, notes, section
from dsf.experiments.page.lack import Lack, advice
from dsf.experiments.page.markup import Markup, join, tag
from dsf.experiments.page.numbers import percent, points
from dsf.experiments.page.run import Runs, as_float, as_mapping, whose
from dsf.experiments.page.tables import DASH, flattened, pairs, shown, table

UNTRAINED = "untrained-"  # before the name of an evaluation in results.json
_NAMES = {
    "knn": "kNN",
    "linear": "linear classifier",
    "linear-paper": "linear classifier, the paper's",
    "finetune": "fine-tuned",
    "corruption": "error on corrupted images",
}
_HEADLINE = {
    "kNN, backbone": "kNN accuracy on test images",
    "linear classifier": "linear accuracy on test images",
}
LEFT_OUT = "each training image by the others"
_CHANGES = {"leave_one_out=True": LEFT_OUT}
# What a protocol says of the encoder it was applied to, and not of itself.
_OF_THE_RUN = ("encoder", "weights", "checkpoint", "checkpoint_sha256", "seed", "precision")
_SUMMED_UP = 4  # beside more runs than this there is no room for what a protocol says of itself
_TEXT = (
    "The share of test images whose class is named rightly from the features of the "
    "frozen encoder, which was trained without labels. kNN lets the nearest training "
    "images vote; the linear classifier is trained on the features."
)
_TEXT_OF_TRAINING = (
    "The share of training images whose class is named rightly by a vote of the others that are "
    "nearest to them (kNN), by the features of the encoder, which was trained without labels."
)


class Accuracy(NamedTuple):
    """A share of images, before and after training; NaN where it was not measured."""

    name: str
    before: float
    after: float
    protocol: Mapping[str, Any]
    lower: bool = False  # an error, which should be small

    @property
    def of_training(self) -> bool:
        """Whether it is of training images, each predicted by the others."""
        return bool(self.protocol.get("leave_one_out"))


def accuracies(results: Mapping[str, Any]) -> list[Accuracy]:
    """What results.json says of kNN, linear, fine-tuned and corrupted, with and without training.

    Example:
        >>> found = {"untrained-linear": {"accuracy": 0.33}, "linear": {"accuracy": 0.49}}
        >>> [(row.name, row.before, row.after) for row in accuracies(found)]
        [('linear classifier', 0.33, 0.49)]
    """
    names = dict.fromkeys(name.removeprefix(UNTRAINED) for name in results)
    heads = list(_NAMES)
    rows = []
    for name in sorted(
        (n for n in names if _head(n) in heads), key=lambda n: heads.index(_head(n))
    ):
        after, before = as_mapping(results.get(name)), as_mapping(results.get(UNTRAINED + name))
        protocol = as_mapping(after.get("protocol") or before.get("protocol"))
        for label, value in _values(name, protocol):
            found = Accuracy(
                label,
                as_float(before.get(value)),
                as_float(after.get(value)),
                protocol,
                _head(name) == "corruption",
            )
            if not (math.isnan(found.before) and math.isnan(found.after)):
                rows.append(found)
    return rows


def accuracy_section(runs: Runs, lacks: Mapping[str, Lack], classes: int | None = None) -> Markup:
    """The table of accuracies.

    Args:
        runs: by label.
        lacks: what their data sets lack, by label.
        classes: of the data, if they are known.
    """
    found = {label: accuracies(run.results) for label, run in runs.items()}
    changed = [
        note(f"{whose(runs, label)}{text}")
        for label, run in runs.items()
        for text in run_image_notes(run, run.results, title)
    ]
    if not any(found.values()):
        missing = {label: f"results.json holds no accuracy: {_how(lacks, label)}" for label in runs}
        return section("accuracy", "Accuracy", *notes(missing), *changed)
    chance = "" if not classes else f" Guessing would give {percent(1 / classes)}."
    single = len(runs) == 1
    content = _alone(next(iter(found.values()))) if single else _side_by_side(found)
    return section(
        "accuracy",
        "Accuracy",
        tag("p", f"{_text([row for rows in found.values() for row in rows])}{chance}"),
        content,
        *changed,
        *(
            note(f"{label}: results.json holds no accuracy yet.")
            for label, rows in found.items()
            if not rows and not single
        ),
        _protocols(found),
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


def title(name: str) -> str:
    """What to call a result.

    Example:
        >>> title("untrained-knn"), title("finetune@pets budget=0.05")
        ('kNN before training', 'fine-tuned, on pets, budget=0.05')
    """
    known = name.removeprefix(UNTRAINED)
    head = _head(known)
    return f"{_NAMES.get(head, head)}{' before training' if known != name else ''}{_more(known)}"


def _how(lacks: Mapping[str, Lack], label: str) -> str:
    """What measures an accuracy of a run."""
    return advice(
        lacks.get(label),
        "dsf eval RUN knn linear measures some",
        "dsf eval RUN knn --leave-one-out measures some",
    )


def _text(rows: Sequence[Accuracy]) -> str:
    """What the accuracies are, and of which images."""
    if all(row.of_training for row in rows):
        return _TEXT_OF_TRAINING
    if any(row.of_training for row in rows):
        return f"{_TEXT} Where a row says {LEFT_OUT}, it is the share of these instead."
    return _TEXT


def _caption(rows: Sequence[Accuracy]) -> str:
    if all(row.of_training for row in rows):
        return "Accuracy on the training images"
    mixed = any(row.of_training for row in rows)
    return f"Accuracy on the test images{', or on training images' if mixed else ''}"


def _head(name: str) -> str:
    return name.split()[0].partition("@")[0] if name.split() else ""


def _values(name: str, protocol: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What to show of a result: a label and the name of the number."""
    head, more = _head(name), _more(name)
    if head == "knn":
        for part in ("backbone", "projection"):
            yield f"{_NAMES[head]}, {part}{more}", part
    elif head == "corruption":
        yield f"{_NAMES[head]}{more}", "mce"
    else:
        of_data = as_mapping(protocol.get("data")).get("metric")
        mean = "mean per class" in (protocol.get("metric"), of_data)
        label = f"{_NAMES[head]}{more}{', mean per class' if mean else ''}"
        yield label, "mean_per_class" if mean else "accuracy"


def _more(name: str) -> str:
    """What is not usual about a result, as it goes on after its name."""
    first, *changes = name.split()
    _, _, data = first.partition("@")
    parts = (f"on {data}" if data else "", *(_CHANGES.get(change, change) for change in changes))
    return "".join(f", {part}" for part in parts if part)


def _alone(rows: Sequence[Accuracy]) -> Markup:
    """Before and after training, where both were measured."""
    compared = any(math.isfinite(row.before) for row in rows)
    header = ("", "before training", "after training", "change, points")
    cells = [
        (
            join((row.name, tag("small", _summary(row.protocol)))),
            _bar(row.before, "before"),
            _bar(row.after, "after"),
            points(row.after - row.before) if math.isfinite(row.after - row.before) else DASH,
        )
        for row in rows
    ]
    caption = _caption(rows)
    if compared:
        return table(caption, header, cells, numbers=(1, 2, 3))
    short = [(name, after) for name, _, after, _ in cells]
    return table(caption, ("", "after training"), short, numbers=(1,))


def _side_by_side(found: Mapping[str, Sequence[Accuracy]]) -> Markup:
    by_name: dict[str, dict[str, Accuracy]] = {}
    for label, rows in found.items():
        for row in rows:
            by_name.setdefault(row.name, {})[label] = row
    rows_shown = []
    for name, of_name in by_name.items():
        entries = list(of_name.values())
        values = [entry.after for entry in entries if math.isfinite(entry.after)]
        alike, best = _alike(entries), None
        if alike and len(set(values)) > 1:
            best = min(values) if entries[0].lower else max(values)
        differ = None if alike else tag("em", "Measured in different ways: see the protocols.")
        summary = tag("small", _summary(entries[0].protocol)) if len(found) <= _SUMMED_UP else None
        head = join((name, summary, differ))
        rows_shown.append((head, *(_cell(of_name.get(label), best) for label in found)))
    images = _caption([row for rows in found.values() for row in rows])
    caption = f"{images}; the best of those that were measured alike is bold"
    whole = table(caption, ("", *found), rows_shown, numbers=range(1, len(found) + 1))
    return tag("div", whole, class_="many")


def _cell(entry: Accuracy | None, best: float | None) -> Markup:
    if entry is None:
        return tag("span", DASH)
    before = f"untrained: {percent(entry.before)}" if math.isfinite(entry.before) else None
    if not math.isfinite(entry.after):
        return tag("small", before)
    value = percent(entry.after)
    shown_value = tag("strong", value) if entry.after == best else tag("span", value)
    return join((shown_value, None if before is None else tag("small", before)))


def _bar(share: float, style: str) -> Markup:
    if not math.isfinite(share):
        return tag("span", DASH)
    width = f"width: {100 * min(max(share, 0.0), 1.0):.1f}%"
    bar = tag("span", tag("span", class_=style, style=width), class_="bar", aria_hidden="true")
    return join((percent(share), bar))


def _summary(protocol: Mapping[str, Any]) -> object:
    """What a protocol says of itself, or all of it."""
    whole = ", ".join(f"{name} = {shown(value)}" for name, value in flattened(protocol))
    return protocol.get("method", whole)


def _alike(rows: Sequence[Accuracy]) -> bool:
    """Whether runs were measured in the same way, on the same data."""
    own = [
        {key: value for key, value in row.protocol.items() if key not in _OF_THE_RUN}
        for row in rows
    ]
    return all(protocol == own[0] for protocol in own)


def _protocols(found: Mapping[str, Sequence[Accuracy]]) -> Markup | None:
    parts: list[Markup] = []
    for label, rows in found.items():
        seen = []
        for row in rows:
            if row.protocol and row.protocol not in seen:
                seen.append(row.protocol)
                name = row.name.removesuffix(", backbone").removesuffix(", projection")
                title = name if len(found) == 1 else f"{label}: {name}"
                parts += [tag("h3", title), pairs(dict(flattened(row.protocol)))]
    if not parts:
        return None
    return tag("details", tag("summary", "The protocols in full"), *parts)
