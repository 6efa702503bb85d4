"""The paper's second table: encoders fine-tuned on other data sets."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from dsf.data.registry import find
from dsf.experiments.paper.document.book import Book
from dsf.experiments.paper.document.markdown import NOT_RUN, NOTHING, fixed, join, signed, table
from dsf.experiments.paper.plan import Transfer

_FAILED = "*failed*"


class Row(NamedTuple):
    """Fine-tuning of one encoder.

    Args:
        label: of the run that trained it.
        names: of the fine-tunings, one a data set.
        theirs: what the paper says of each, if it does.
        ours: what we found, NaN where nothing was.
    """

    label: str
    names: list[str]
    theirs: list[float | None]
    ours: list[float]


def rows(book: Book, name: str) -> list[Row]:
    """A row an encoder of a transfer, in the order of the plan's methods."""
    found = []
    for names in book.by_method(book.plan.parts[name]).values():
        encoders: dict[str, list[str]] = {}
        for run in names:
            asked = book.plan.every[run].finetuning
            assert asked is not None
            encoders.setdefault(asked.of, []).append(run)
        for of, runs in encoders.items():
            theirs = [book.plan.every[run].published.finetune for run in runs]
            outcomes = [book.get(run) for run in runs]
            ours = [math.nan if outcome is None else outcome.finetuned for outcome in outcomes]
            found.append(Row(book.plan.label(of), runs, theirs, ours))
    return found


def transfers(book: Book) -> str | None:
    """A section for each transfer of the plan."""
    return join(*(_section(book, name, each) for name, each in book.plan.transfers.items())) or None


def _section(book: Book, name: str, transfer: Transfer) -> str:
    found = rows(book, name)
    published = any(value is not None for row in found for value in row.theirs)
    names = transfer.data_names
    header = ["method", *([""] if published else []), *names, "average", "GPU s"]
    lines = [line for row in found for line in _lines(book, row, published)]
    per_class = [data for data in names if find(data).metric == "mean per class"]
    metric = "Top-1 accuracy after fine-tuning all weights"
    if per_class:
        metric += f"; of {', '.join(per_class)} the mean over classes"
    return join(
        book.heading(name, "Table 2: transfer"),
        f"{metric}. Learning rate and weight decay are chosen on validation images, with "
        f"{'the whole budget' if transfer.budget == 1 else f'{transfer.budget:g} of the budget'} "
        "of SimCLR's protocol.",
        book.partial(book.plan.parts[name]),
        table(header, lines, words=2 if published else 1),
        book.plan.remarks.get(name),
    )


def _lines(book: Book, row: Row, published: bool) -> list[list[str]]:
    # An average of fewer data sets than the paper's would be of something else.
    counted = [not published or value is not None for value in row.theirs]
    theirs = [math.nan if value is None else value for value in row.theirs]
    apart = [our - their for our, their in zip(row.ours, theirs, strict=True)]
    spent = [outcome.spent for _, outcome in book.done(row.names)]
    seconds = fixed(sum(spent), 0) if spent else NOTHING
    shown = [_cell(book, name, value) for name, value in zip(row.names, row.ours, strict=True)]
    ours = [*shown, fixed(_average(row.ours, counted)), seconds]
    if not published:
        return [[row.label, *ours]]
    difference = [*map(signed, apart), signed(_average(apart, counted)), NOTHING]
    return [
        [row.label, "paper", *map(fixed, theirs), fixed(_average(theirs, counted)), NOTHING],
        ["", "ours", *ours],
        ["", "difference", *difference],
    ]


def _average(values: Sequence[float], counted: Sequence[bool]) -> float:
    chosen = [value for value, counts in zip(values, counted, strict=True) if counts]
    return fmean(chosen) if chosen else math.nan


def _cell(book: Book, name: str, value: float) -> str:
    outcome = book.outcomes.get(name)
    if outcome is None:
        return NOT_RUN
    return _FAILED if outcome.failure else fixed(value)
