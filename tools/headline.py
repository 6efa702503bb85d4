"""Write the README's table and figure of the paper's main result from results/cifar10.

    python tools/headline.py        # or `make results`

It stands between two marks, and a test holds it to the results.
"""

from pathlib import Path

from dsf.experiments.paper.document import Book
from dsf.experiments.paper.document.book import MEASURES
from dsf.experiments.paper.document.comparison import seed_pairs
from dsf.experiments.paper.document.markdown import NOT_RUN, fixed, join, signed, table
from dsf.experiments.paper.plan import load_plan

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FIGURE = "docs/figures/cifar10/training-kNN.svg"
BEGIN, END = "<!-- made by `make results` -->\n", "<!-- until here -->\n"
COLUMNS = {"kNN": "knn", "linear": "linear", "mCE, all": "mce"}

_TEXT = """\
CIFAR-10, ResNet-18, equal numbers of views for all: accuracy in per cent, error under corruptions
of all severities, and minutes of training on one H200; in brackets what the paper reports.
[What it means, every other run, and what did not hold](docs/results.md)."""


def headline(book: Book) -> str:
    """The table, how sure it is, and the figure."""
    rows = []
    for label, names in book.by_method(book.group("table1")).items():
        for name in names:
            published, outcome = book.plan.every[name].published, book.get(name)
            theirs = [f"({fixed(getattr(published, field))})" for field in COLUMNS.values()]
            if outcome is None:
                ours, minutes = [NOT_RUN] * len(COLUMNS), NOT_RUN
            else:
                ours = [fixed(MEASURES[measure](outcome)) for measure in COLUMNS]
                minutes = fixed(outcome.seconds / 60, 1)
            cells = [f"{our} {their}" for our, their in zip(ours, theirs, strict=True)]
            rows.append([label, book.epochs(name), *cells, minutes])
    header = ("method", "epochs", "kNN", "linear", "corruption error", "GPU minutes")
    return join(
        _TEXT.replace("\n", " "),
        table(header, rows),
        _seeds(book),
        f"![kNN accuracy against GPU time]({FIGURE})",
    )


def _seeds(book: Book) -> str | None:
    """How sure the table's order is of two methods."""
    pairs = seed_pairs(book)
    interval = pairs and pairs.interval("kNN")
    if not pairs or not interval:
        return None
    one, other = pairs.labels
    if interval.low > 0 or interval.high < 0:
        verdict = f"{one if interval.low > 0 else other} is ahead"
    else:
        verdict = "which of the two is better is open"
    count = len(pairs.values("kNN"))
    return (
        f"Each row is one run. Over {count} seeds of {pairs.epochs} epochs {one} "
        f"differs from {other} by {signed(interval.mean)} points of kNN (95 % interval "
        f"{signed(interval.low)} to {signed(interval.high)}): {verdict}."
    )


def replaced(text: str, made: str) -> str:
    """A text with what stands between the two marks made anew."""
    before, found, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"the text must have the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{made}\n\n{END}{after}"


def main() -> None:
    """Write it."""
    book = Book.read(load_plan("cifar10"), ROOT / "results" / "cifar10")
    text = README.read_text(encoding="utf-8")
    README.write_text(replaced(text, headline(book)), encoding="utf-8")
    print(README.name)


if __name__ == "__main__":
    main()
