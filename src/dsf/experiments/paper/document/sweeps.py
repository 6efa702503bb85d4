"""One thing varied at a time: parts of DSF, the head, the temperature, the number of views."""

import math
from collections.abc import Sequence

from dsf.experiments.page.chart import Series
from dsf.experiments.paper.document.book import COST, MEASURES, SHORT, Book
from dsf.experiments.paper.document.markdown import NOTHING, fixed, join, signed, table
from dsf.experiments.paper.outcome import Outcome
from dsf.training.health import collapsed

_STALLED = 0.95  # of the loss of guessing
_CHOOSING = (*SHORT, "kNN, left out")


def ablation(book: Book) -> str | None:
    """What makes DSF work: the first run of the group, and one change each."""
    names = book.group("ablation")
    if not names:
        return None
    base, rows = book.get(names[0]), []
    for name in names:
        outcome = book.get(name)
        known = base is not None and outcome is not None and name != names[0]
        change = signed(outcome.knn - base.knn) if known and outcome and base else NOTHING
        rows.append(
            [book.plan.label(name), book.epochs(name), *book.cells(name, _CHOOSING), change]
        )
    return join(
        "## What makes DSF work",
        "The first row is DSF as the authors ran it: \N{GREEK SMALL LETTER KAPPA} / p in all "
        "terms, one \N{GREEK SMALL LETTER KAPPA} for the whole queue, "
        "\N{GREEK SMALL LETTER LAMDA} = 0.95. "
        "Each other row changes what it names. The last column is its kNN less that of the "
        "first; if a variant is chosen, then by *kNN, left out*.",
        book.partial(names),
        table(("variant", "epochs", *_CHOOSING, *COST, "kNN, change"), rows),
    )


def stalled(outcome: Outcome) -> bool:
    """Whether a run ends where it began: its loss is that of guessing, or its features are one."""
    loss, margin, spread = (
        ([math.nan] + [y for _, y in outcome.curve(name) if math.isfinite(y)])[-1]
        for name in ("loss", "margin", "feature_spread")
    )
    queue = outcome.setting("loss.queue") or 0
    guesses = bool(queue) and loss > _STALLED * math.log(1 + queue)
    return guesses or collapsed(margin, spread)


def head(book: Book) -> str | None:
    """The published head."""
    names = (*book.group("head"), *book.group("head-long"))
    if not names:
        return None
    rows = []
    for name in names:
        outcome = book.get(name)
        state = NOTHING if outcome is None else "stalled" if stalled(outcome) else "learns"
        cells = book.cells(name, ("kNN", "kNN, backbone", "linear", "linear, fast"))
        rows.append([book.plan.label(name), state, book.epochs(name), *cells])
    return join(
        "## The published head",
        "The paper's CIFAR-10 runs have a projection head without BatchNorm (`head=mlp`); all "
        "other sections have one with it. Here are the authors' learning rates and temperatures. "
        "A run is stalled if its last loss is above 95 % of that of guessing, log(K + 1), or if "
        "all features are one at its end.",
        book.partial(names),
        table(
            (
                "method",
                "state",
                "epochs",
                "kNN",
                "kNN, backbone",
                "linear",
                "linear, fast",
                *COST,
            ),
            rows,
            words=2,
        ),
    )


def temperature(book: Book) -> str | None:
    """Temperatures of DSF beside those of Feature_avg."""
    names = book.group("temperature")
    if not names:
        return None
    parts = []
    for label, runs in book.by_method(names).items():
        rows = []
        for name in sorted(runs, key=lambda run: book.planned(run).loss.temperature or 0.0):
            published = book.plan.every[name].published
            theirs = [fixed(published.knn), fixed(published.linear)]
            tau = f"{book.planned(name).loss.temperature:g}"
            rows.append([tau, book.epochs(name), *book.cells(name, SHORT), *theirs])
        header = ("temperature", "epochs", *SHORT, *COST, "paper: kNN", "paper: linear")
        parts.append(join(f"### {label}", table(header, rows)))
    return join(
        "## Temperature",
        "The paper's numbers are of 250 epochs; it also has 0.9 (kNN 89.83, linear 91.18) and 1.1 "
        "(89.80, 91.09).",
        book.partial(names),
        *parts,
    )


def views(book: Book) -> str | None:
    """Accuracy over the number of views, at equal epochs and at equal GPU time."""
    parts = [
        _views(book, group, title)
        for group, title in (
            ("views", "equal epochs"),
            ("views-equal", "equal numbers of views, so equal GPU time"),
        )
    ]
    if not any(parts):
        return None
    return join(
        "## Number of views",
        "256 images a step. With two views, one a side, all concentrations are equal and the three "
        "methods are one: a cosine loss.",
        *parts,
    )


def _views(book: Book, group: str, title: str) -> str | None:
    names = book.group(group)
    if not names:
        return None
    charts = [
        book.figures.draw(
            f"{group}-{short}",
            f"{measure} over the number of views, {title}",
            view_series(book, names, measure),
            "views an image, M",
            f"{short}, %",
        )
        for short, measure in (("kNN", "kNN"), ("linear", "linear, fast"))
    ]
    ordered = sorted(names, key=lambda name: book.planned(name).views.count)
    rows = [
        [
            str(book.planned(name).views.count),
            book.plan.label(name),
            book.epochs(name),
            *book.cells(name, SHORT),
        ]
        for name in ordered
    ]
    return join(
        f"### At {title}",
        book.partial(names),
        " ".join(filter(None, charts)),
        table(("M", "method", "epochs", *SHORT, *COST), rows, words=2),
    )


def view_series(book: Book, names: Sequence[str], measure: str) -> list[Series]:
    """A line a method, the last of the plan first; the run with two views belongs to all."""
    shared = [name for name in names if book.planned(name).views.count == 2]
    result = []
    for label, runs in reversed(book.by_method(names).items()):
        points = sorted(
            (float(book.planned(name).views.count), MEASURES[measure](outcome))
            for name, outcome in book.done(list(dict.fromkeys([*shared, *runs])))
        )
        result.append(Series(label, points))
    return result
