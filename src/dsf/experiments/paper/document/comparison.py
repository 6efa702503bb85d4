"""The paper's main table beside our numbers, and two methods over several seeds."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from dsf.experiments.paper.document.book import COST, MEASURES, Book, cost
from dsf.experiments.paper.document.markdown import NOT_RUN, NOTHING, fixed, join, signed, table
from dsf.experiments.paper.document.statistics import Interval, paired_interval
from dsf.experiments.paper.outcome import Outcome

# What others may have published of a measure.
_PUBLISHED = {"kNN": "knn", "kNN, backbone": "knn_backbone", "linear": "linear", "mCE": "mce"}
_ALL = ("kNN", "kNN, backbone", "linear", "linear, fast", "mCE", "mCE, all")


def table1(book: Book) -> str | None:
    """Table 1: the methods at equal resources."""
    return _methods(book, "table1", "Table 1: equal resources")


def large(book: Book) -> str | None:
    """Some of the methods on larger images."""
    return _methods(book, "large", "Larger images")


def _methods(book: Book, group: str, title: str) -> str | None:
    """A row a method; beside each measure that somebody published, that and the difference."""
    if not book.group(group):
        return None
    names = [name for found in book.by_method(book.group(group)).values() for name in found]
    published = [book.plan.every[name].published for name in names]
    beside = [
        measure
        for measure, field in _PUBLISHED.items()
        if any(getattr(item, field) is not None for item in published)
    ]
    alone = [measure for measure in _ALL if measure not in beside]
    whose = "published" if any(item.by for item in published) else "paper"
    header = ["method", "epochs"]
    for measure in beside:
        header += [f"{measure}: {whose}", "ours", "difference"]
    rows = [_row(book, name, beside, alone) for name in names]
    return join(
        book.heading(group, title),
        book.partial(names),
        table([*header, *alone, *COST], rows),
        book.plan.remarks.get(group),
    )


def _row(book: Book, name: str, beside: Sequence[str], alone: Sequence[str]) -> list[str]:
    published, outcome = book.plan.every[name].published, book.get(name)
    epochs = book.epochs(name)
    if published.epochs is not None and str(published.epochs) != epochs:
        epochs = f"{epochs} (paper {published.epochs})"
    start = [book.plan.label(name), epochs]
    theirs = [getattr(published, _PUBLISHED[measure]) for measure in beside]
    if outcome is None:
        cells = [cell for value in theirs for cell in (fixed(value), NOTHING, NOTHING)]
        cells += [NOTHING] * (len(alone) + len(COST))
        cells[1 if beside else 0] = book.cells(name)[0]
        return [*start, *cells]
    cells = []
    for measure, their in zip(beside, theirs, strict=True):
        our = MEASURES[measure](outcome)
        apart = NOTHING if their is None else signed(our - their)
        cells += [fixed(their), fixed(our), apart]
    return [
        *start,
        *cells,
        *(fixed(MEASURES[measure](outcome)) for measure in alone),
        *cost(outcome),
    ]


class Pairs(NamedTuple):
    """Two methods with equal seeds."""

    methods: tuple[str, str]
    labels: tuple[str, str]
    epochs: str
    seeds: list[int]
    outcomes: list[tuple[Outcome, Outcome]]

    def values(self, measure: str) -> list[tuple[float, float]]:
        """What is known of both."""
        get = MEASURES[measure]
        found = [(get(one), get(other)) for one, other in self.outcomes]
        return [pair for pair in found if all(map(math.isfinite, pair))]

    def interval(self, measure: str) -> Interval | None:
        """The difference of the first less the second; None with fewer than two seeds."""
        known = self.values(measure)
        return paired_interval(*zip(*known, strict=True)) if len(known) > 1 else None


def seed_pairs(book: Book) -> Pairs | None:
    """The runs of the group ``seeds``: its first method against its second."""
    names = book.group("seeds")
    methods = tuple(dict.fromkeys(book.plan.every[name].method for name in names))
    if len(methods) != 2:
        return None
    runs = {(book.plan.every[name].method, book.planned(name).seed): name for name in names}
    seeds = list(dict.fromkeys(seed for _, seed in runs))
    pairs = []
    for seed in seeds:
        one, other = (book.get(runs.get((method, seed), "")) for method in methods)
        if one is not None and other is not None:
            pairs.append((one, other))
    labels = book.plan.methods[methods[0]].label, book.plan.methods[methods[1]].label
    epochs = " or ".join(dict.fromkeys(map(book.epochs, names)))
    return Pairs(methods, labels, epochs, seeds, pairs)


def seeds(book: Book) -> str | None:
    """Two methods, several seeds: means, the difference, and how sure it is."""
    names, pairs = book.group("seeds"), seed_pairs(book)
    if pairs is None:
        return None
    rows = []
    for name in names:
        label = f"{book.plan.label(name)}, seed {book.planned(name).seed}"
        rows.append([label, book.epochs(name), *book.cells(name, _ALL)])
    each = table(("run", "epochs", *_ALL, *COST), rows)
    one, other = pairs.labels
    header = ("measure", one, other, "difference", "95 % interval")
    summary = [_summary(pairs, measure) for measure in _ALL]
    return join(
        f"## {one} against {other}, {len(pairs.seeds)} seeds",
        "The interval is that of the mean of paired differences, by Student's t distribution.",
        book.partial(names),
        table(header, summary),
        each,
    )


def _summary(pairs: Pairs, measure: str) -> list[str]:
    interval = pairs.interval(measure)
    if interval is None:
        return [measure, NOT_RUN, *[NOTHING] * 3]
    means = map(fmean, zip(*pairs.values(measure), strict=True))
    bounds = f"{signed(interval.low)} to {signed(interval.high)}"
    return [measure, *map(fixed, means), signed(interval.mean), bounds]
