"""Training over time: accuracy against GPU time, margin, concentration, KL's three terms."""

from collections.abc import Iterable, Sequence

from dsf.experiments.page.chart import Point, Series
from dsf.experiments.page.run import as_float
from dsf.experiments.paper.document.book import COST, MEASURES, Book
from dsf.experiments.paper.document.markdown import join, table
from dsf.experiments.paper.outcome import Outcome

_COLUMNS = ("kNN", "kNN, backbone", "linear", "linear, fast", "mCE")
_LATE = 10  # points of kNN that are shown of a training
# The first two do not know which images are paired: their means are those of either kind.
_TERMS = {
    "positive": {"log ratio": "kl_log", "Bessel": "kl_bessel", "cosine": "kl_cos"},
    "negative": {"log ratio": "kl_log", "Bessel": "kl_bessel", "cosine": "negative_kl_cos"},
}


def convergence(book: Book) -> str | None:
    """Completed runs of several lengths against the GPU time they took."""
    names = book.group("convergence")
    if not names:
        return None
    charts = [
        book.figures.draw(
            f"time-{short}",
            f"{measure} of completed runs against GPU time",
            _series(book, names, measure),
            "GPU minutes",
            f"{short}, %",
        )
        for short, measure in (("kNN", "kNN"), ("linear", "linear"))
    ]
    during = book.figures.draw(
        "training-kNN",
        "kNN during training against GPU time",
        _late(
            Series(book.plan.label(name), _minutes(outcome))
            for found in reversed(book.by_method(book.group("table1")).values())
            for name, outcome in book.done(found)
        ),
        "GPU minutes",
        "kNN, %",
    )
    rows = [
        [label, book.epochs(name), *book.cells(name, _COLUMNS)]
        for label, found in book.by_method(names).items()
        for name in sorted(found, key=lambda run: book.planned(run).epochs)
    ]
    return join(
        "## Accuracy against time",
        "Each point is a run of its own, with its own learning rate schedule, trained to its end. "
        "GPU time is that of training alone, without compilation.",
        book.partial(names),
        " ".join(filter(None, charts)),
        during
        and join(
            f"The runs of Table 1 while they train, where they are within {_LATE} points of the "
            "best:",
            during,
        ),
        table(("method", "epochs", *_COLUMNS, *COST), rows),
    )


def _series(book: Book, names: Sequence[str], measure: str) -> list[Series]:
    result = []
    for label, found in reversed(book.by_method(names).items()):
        done = [outcome for _, outcome in book.done(found)]
        points = [(outcome.seconds / 60, MEASURES[measure](outcome)) for outcome in done]
        result.append(Series(label, sorted(points)))
    return result


def _minutes(outcome: Outcome) -> list[Point]:
    found, start = outcome.curve("projection", "seconds", "knn"), outcome.start
    return [(max(0.0, x - start) / 60, 100 * y) for x, y in found]


def _late(series: Iterable[Series]) -> list[Series]:
    """Their upper ends, since beside the first minutes no difference can be seen."""
    lines = list(series)
    best = max((y for line in lines for _, y in line.finite), default=0.0)
    return [
        Series(line.name, [point for point in line.finite if point[1] >= best - _LATE])
        for line in lines
    ]


def longest(book: Book, method: str) -> tuple[str, Outcome] | None:
    """The run of a method that saw the most views, in its usual form."""
    names = [name for name, run in book.plan.runs.items() if run.method == method]
    usual = [name for name in names if name.split("/")[0] in ("table1", "seeds", "convergence")]
    done = book.done(usual)
    return max(done, key=lambda pair: pair[1].views) if done else None


def margin(book: Book) -> str | None:
    """The margin of similarities and the concentrations over training."""
    if "dsf" not in book.plan.methods:
        return None
    found = longest(book, "dsf")
    if found is None:
        return join("## Margin and concentration over training", "**Not run yet.**")
    name, outcome = found
    kappa = "\N{GREEK SMALL LETTER KAPPA}"
    charts = [
        book.figures.draw(
            "margin",
            "Similarity margin over training",
            [Series("margin", outcome.curve("margin"))],
            "epoch",
            "positive \N{MINUS SIGN} negative similarity",
        ),
        book.figures.draw(
            "kappa-training",
            "Concentration over training",
            [Series(part, outcome.curve(f"kappa_{part}")) for part in ("min", "mean", "max")],
            "epoch",
            kappa,
        ),
    ]
    elsewhere = "(The paper shows the margin of MoCo v3 on ImageNet-100.)"
    return join(
        "## Margin and concentration over training",
        f"Of `{name}`: s\N{SUPERSCRIPT PLUS SIGN} \N{MINUS SIGN} s\N{SUPERSCRIPT MINUS}, the mean "
        f"over batches, and {kappa} before it is divided by p. "
        f"{book.plan.remarks.get('margin', elsewhere)}",
        " ".join(filter(None, charts)),
        _margins(book),
    )


def _margins(book: Book) -> str | None:
    """The margins of all methods, where there are several to compare."""
    series = []
    for label, names in reversed(book.by_method(book.group("table1")).items()):
        for _, outcome in book.done(names):
            tau = as_float(outcome.setting("loss.temperature"))
            # Over the share of the training, since a method of two views has more epochs.
            last = max((x for x, _ in outcome.curve("margin")), default=1.0)
            points = [(100 * x / last, y / tau) for x, y in outcome.curve("margin")]
            series.append(Series(label, points))
    if len(series) < 2:
        return None
    chart = book.figures.draw(
        "margins",
        "Margin of all methods over training",
        series,
        "share of the training, %",
        "margin / temperature",
    )
    return chart and join(
        "The margin of each method divided by its temperature, which is what the softmax sees:",
        chart,
    )


def divergence_terms(book: Book) -> str | None:
    """KL's three terms over training."""
    if "dsf" not in book.plan.methods:
        return None
    found = longest(book, "dsf")
    if found is None:
        return join("## The three terms of KL over training", "**Not run yet.**")
    name, outcome = found
    charts = []
    for kind, metrics in _TERMS.items():
        terms = [Series(label, outcome.curve(metric)) for label, metric in metrics.items()]
        if not all(term.finite for term in terms):
            continue
        total: dict[float, float] = {}
        for term in terms:
            for x, y in term.points:
                total[x] = total.get(x, 0.0) + y
        charts.append(
            book.figures.draw(
                f"kl-{kind}",
                f"The three terms of KL and their sum, {kind} pairs",
                [*terms, Series("sum", list(total.items()))],
                "epoch",
                kind,
            )
        )
    return join(
        "## The three terms of KL over training",
        f"Of `{name}`: \N{GREEK SMALL LETTER NU} log(k\N{LATIN SUBSCRIPT SMALL LETTER I} / "
        "k\N{LATIN SUBSCRIPT SMALL LETTER J}), the ratio of Bessel functions, and "
        "A (k\N{LATIN SUBSCRIPT SMALL LETTER I} \N{MINUS SIGN} "
        "k\N{LATIN SUBSCRIPT SMALL LETTER J} cos), in the authors' form (k = "
        "\N{GREEK SMALL LETTER KAPPA} / p, A = the shrunken resultant). Positive pairs are two "
        "halves of one image's views, negative ones halves of two images; the means of the first "
        "two terms are the same for both.",
        " ".join(filter(None, charts)),
    )
