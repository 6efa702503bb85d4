"""Where the numbers come from: what has run, what was chosen, and by which commands."""

import math
from collections.abc import Iterable, Sequence

from dsf.experiments.paper.configuration import RULE
from dsf.experiments.paper.document.book import Book
from dsf.experiments.paper.document.markdown import NOT_RUN, fixed, join, table
from dsf.experiments.paper.outcome import Outcome


def standing(book: Book) -> str:
    """How much of the plan is done."""
    rows = []
    for group, names in book.plan.parts.items():
        there = [book.outcomes[name] for name in names if name in book.outcomes]
        rows.append([group, f"{len(there)} of {len(names)}", fixed(_minutes(there), 1)])
    return join(
        "## What has run",
        f"{_done(book)} runs are done, with {fixed(_minutes(book.outcomes.values()), 1)} minutes "
        "of training or fine-tuning; a run may belong to several groups.",
        table(("group", "done", "GPU minutes"), rows),
    )


def overview(books: Sequence[Book]) -> str:
    """How much of each plan is done."""
    rows = [
        [book.plan.title, _done(book), fixed(_minutes(book.outcomes.values()), 1)] for book in books
    ]
    return table(("chapter", "runs done", "GPU minutes"), rows)


def _done(book: Book) -> str:
    return f"{len(book.outcomes)} of {len(book.plan.every)}"


def _minutes(outcomes: Iterable[Outcome]) -> float:
    known = {outcome.content["run"]: outcome for outcome in outcomes}
    # A run that is the same as another one was not made again.
    own = [outcome for outcome in known.values() if outcome.content.get("same_as") not in known]
    spent = (outcome.spent for outcome in own)
    return sum(seconds for seconds in spent if math.isfinite(seconds)) / 60


def tuning(book: Book) -> str | None:
    """The candidates and their scores."""
    parts = []
    for key, method in book.plan.methods.items():
        names = book.plan.candidates(key)
        if not names:
            continue
        scores = {name: outcome.score for name, outcome in book.outcomes.items() if name in names}
        known = {name: score for name, score in scores.items() if score == score}
        best = max(known, key=lambda name: known[name]) if len(scores) == len(names) else None
        rows = []
        for name in names:
            words = [word.partition("=") for word in book.plan.every[name].candidate]
            values = [f"{float(value):g}" for _, _, value in words]
            if name not in book.outcomes:
                score = NOT_RUN
            else:
                score = fixed(scores[name]) if name in known else "*failed*"
            rows.append([*values, f"**{score}**" if name == best else score])
        header = (*(path.rsplit(".", 1)[-1] for path in method.grid), "kNN, leave one out")
        parts.append(join(f"### {method.label}", book.partial(names), table(header, rows, words=0)))
    if not parts:
        return None
    return join("## Settings that were chosen", f"By {RULE}.", *parts)


def _twin(outcome: Outcome) -> str:
    twin = outcome.content.get("same_as")
    return f", which is `{twin}`" if twin else ""


def sources(book: Book) -> str:
    """A row a result: where it was made, and how to make it again."""
    rows = []
    for name in book.plan.every:
        outcome = book.outcomes.get(name)
        if outcome is None:
            continue
        found = outcome.content["environment"]
        packages = found.get("packages", {})
        commit = str(found.get("commit") or "unknown")
        short = commit[:9] + (" with changes" if commit.endswith("with changes") else "")
        rows.append(
            [
                f"`{name}`",
                short,
                str(found.get("device", "unknown")),
                str(packages.get("torch", "unknown")),
                f"`{outcome.content.get('train', '')}`{_twin(outcome)}",
            ]
        )
    if not rows:
        return join("## Sources", "**Not run yet.**")
    return join(
        "## Sources",
        f"The files are `results/{book.plan.name}/RUN.json`; "
        f"`dsf reproduce {book.plan.address('RUN')}` makes one that is missing.",
        table(("run", "commit", "device", "torch", "training"), rows, words=5),
    )
