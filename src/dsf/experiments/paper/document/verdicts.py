"""What held and what did not: sentences by rule, from the numbers alone."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from dsf.experiments.paper.document import transfer
from dsf.experiments.paper.document.book import MEASURES, Book
from dsf.experiments.paper.document.comparison import Pairs, seed_pairs
from dsf.experiments.paper.document.dynamics import longest
from dsf.experiments.paper.document.markdown import fixed, join, signed, table
from dsf.experiments.paper.document.statistics import noise
from dsf.experiments.paper.document.sweeps import stalled
from dsf.experiments.paper.outcome import Outcome
from dsf.experiments.paper.plan import Published

Status = Literal["held", "did not hold", "undecided", "not run"]
_MEASURES = ("kNN", "linear", "mCE")
_LOWER = ("mCE", "mCE, all")


class Verdict(NamedTuple):
    """A claim of the paper, what we found, and what that says."""

    claim: str
    found: str
    status: Status


def verdicts(book: Book) -> str:
    """The section."""
    found = [item for rule in _RULES for item in rule(book)]
    rows = [[item.claim, item.found, f"**{item.status}**"] for item in found]
    published = [run.published for run in book.plan.every.values()]
    own = any(item != Published() and item.by is None for item in published)
    return join(
        "## What held, what did not",
        "By rule, from the numbers. Single runs are *undecided* where they differ by no more than "
        "the chance of the test images explains (1.96 standard errors), several seeds where the "
        "95 % interval of the difference holds 0, or as many points as the paper's Table 1 has "
        "between the two if that is claimed.",
        table((f"the paper says{'' if own else ' of other data'}", "found", ""), rows, words=3),
    )


def compared(one: float, other: float, images: float, lower: bool = False) -> Status:
    """Whether the first of two single runs is better, in per cent of so many test images."""
    gain = other - one if lower else one - other
    if not math.isfinite(gain):
        return "not run"
    if not images > 0 or abs(gain) <= noise((one + other) / 2, images):
        return "undecided"
    return "held" if gain > 0 else "did not hold"


def _over_seeds(book: Book) -> Iterator[Verdict]:
    pairs = seed_pairs(book)
    if pairs is None:
        return
    one, other = pairs.labels
    for measure in _MEASURES:
        claim = f"{one} is {_side(measure)} {other} in {measure}"
        yield _ahead(pairs, measure, claim, 0.0)
    table1 = {book.plan.every[name].method: book.plan.every[name] for name in book.group("table1")}
    if not all(method in table1 for method in pairs.methods):
        return
    first, second = (_published(table1[method].published) for method in pairs.methods)
    for measure in first:
        if measure in second:
            gain = first[measure] - second[measure]
            lead = -gain if measure in _LOWER else gain
            claim = f"{one} is {fixed(lead)} points {_side(measure)} {other} in {measure}"
            yield _ahead(pairs, measure, claim, lead)


def _ahead(pairs: Pairs, measure: str, claim: str, lead: float) -> Verdict:
    """Whether the first of two methods is ahead by more than so many points, by its interval."""
    interval, count = pairs.interval(measure), len(pairs.values(measure))
    if interval is None:
        return Verdict(claim, f"{count} of {len(pairs.seeds)} seeds", "not run")
    lower = measure in _LOWER
    low, high = (-interval.high, -interval.low) if lower else (interval.low, interval.high)
    status: Status = "held" if low > lead else "did not hold" if high < lead else "undecided"
    shown = f"{signed(interval.low)} to {signed(interval.high)}"
    runs = f"{count} seeds of {pairs.epochs} epochs"
    text = f"{signed(interval.mean)} points, 95 % interval {shown}, {runs}"
    return Verdict(claim, text, status)


def _side(measure: str) -> str:
    return "below" if measure in _LOWER else "above"


def _published(said: Published) -> dict[str, float]:
    """What is said, by measure; the paper's corruption error may be of all severities."""
    every = {"kNN": said.knn, "linear": said.linear, "mCE": said.mce, "mCE, all": said.mce}
    return {measure: value for measure, value in every.items() if value is not None}


def _best_of_table(book: Book) -> Iterator[Verdict]:
    names = book.group("table1")
    own = [name for name in names if book.plan.every[name].method == "dsf"]
    rivals = [name for name in names if name not in own]
    if not own or not rivals:
        return
    outcome, others = book.get(own[0]), book.done(rivals)
    which = f"of {len(names)} methods" if "table1" in book.plan.titles else "of Table 1"
    for measure in _MEASURES:
        lower = measure in _LOWER
        claim = f"DSF is the best {which} in {measure}"
        get = MEASURES[measure]
        # A rival without this number may be the best.
        done = sum(math.isfinite(get(found)) for _, found in book.done(names))
        if outcome is None or done < len(names):
            yield Verdict(claim, f"{done} of {len(names)} runs", "not run")
            continue
        order = (min if lower else max)(others, key=lambda pair: get(pair[1]))
        rival = get(order[1])
        text = f"{fixed(get(outcome))}; best rival {book.plan.label(order[0])} with {fixed(rival)}"
        yield Verdict(claim, text, compared(get(outcome), rival, outcome.test_images, lower))


def _reached(book: Book) -> Iterator[Verdict]:
    for name in book.group("table1"):
        run = book.plan.every[name]
        if run.method != "dsf":
            continue
        outcome = book.get(name)
        for measure, published in _published(run.published).items():
            claim = f"DSF reaches {fixed(published)} in {measure}"
            ours = math.nan if outcome is None else MEASURES[measure](outcome)
            if math.isnan(ours):
                yield Verdict(claim, "", "not run")
                continue
            text = f"{fixed(ours)}, {signed(ours - published)} points"
            images = math.nan if outcome is None else outcome.test_images
            yield Verdict(claim, text, compared(ours, published, images, measure in _LOWER))


def _temperature(book: Book) -> Iterator[Verdict]:
    names = [name for name in book.group("temperature") if book.plan.every[name].method == "dsf"]
    if not names:
        return
    claim = "DSF is best at temperature 1"
    done = book.done(names)
    at = {book.planned(name).loss.temperature or 1.0: outcome.knn for name, outcome in done}
    if len(done) < len(names) or 1.0 not in at:
        yield Verdict(claim, f"{len(done)} of {len(names)} runs", "not run")
        return
    rest = {tau: value for tau, value in at.items() if tau != 1.0}
    best = max(rest, key=lambda tau: rest[tau])
    text = f"kNN {fixed(at[1.0])} at 1; next {fixed(rest[best])} at {best:g}"
    yield Verdict(claim, text, compared(at[1.0], rest[best], done[0][1].test_images))


def _views(book: Book) -> Iterator[Verdict]:
    names = [name for name in book.group("views") if book.planned(name).views.count > 2]
    own = [name for name in names if book.plan.every[name].method == "dsf"]
    if not own or len(own) == len(names):
        return
    claim = "DSF is above the other multi-view methods for every number of views"
    if len(book.done(names)) < len(names):
        yield Verdict(claim, f"{len(book.done(names))} of {len(names)} runs", "not run")
    else:
        leads = []
        for name in own:
            count = book.planned(name).views.count
            equal = [
                outcome.knn
                for other, outcome in book.done(names)
                if other not in own and book.planned(other).views.count == count
            ]
            outcome = book.get(name)
            if outcome is not None and equal:
                leads.append((count, outcome.knn, max(equal), outcome.test_images))
        statuses = [compared(one, other, images) for _, one, other, images in leads]
        text = "kNN lead " + ", ".join(
            f"{signed(one - other)} at M = {count}" for count, one, other, _ in leads
        )
        yield Verdict(claim, text, _all(statuses))
    yield from _more_views(book, own)


def _more_views(book: Book, own: Sequence[str]) -> Iterator[Verdict]:
    claim = "More views are better for DSF"
    shared = [name for name in book.group("views") if book.planned(name).views.count == 2]
    names = sorted((*shared, *own), key=lambda name: book.planned(name).views.count)
    done = book.done(names)
    if len(done) < len(names):
        yield Verdict(claim, f"{len(done)} of {len(names)} runs", "not run")
        return
    values = [outcome.knn for _, outcome in done]
    steps = [compared(after, before, done[0][1].test_images) for before, after in pairwise(values)]
    counts = [book.planned(name).views.count for name, _ in done]
    text = "kNN " + ", ".join(
        f"{fixed(value)} at {count}" for value, count in zip(values, counts, strict=True)
    )
    yield Verdict(claim, text, _all(steps))


def _half_the_epochs(book: Book) -> Iterator[Verdict]:
    names = book.group("convergence")
    lengths: dict[str, dict[int, Outcome]] = {}
    planned: dict[str, list[int]] = {}
    for name in names:
        method = book.plan.every[name].method
        planned.setdefault(method, []).append(book.planned(name).epochs)
        for _, outcome in book.done([name]):
            lengths.setdefault(method, {})[book.planned(name).epochs] = outcome
    whole = max(planned.get("dsf", [0]))
    half = next((epochs for epochs in planned.get("dsf", []) if 2 * epochs == whole), None)
    if half is None:
        return
    for method in ("loss-avg", "feature-avg"):
        if method not in planned:
            continue
        label = book.plan.methods[method].label
        claim = f"DSF reaches in {half} epochs what {label} does in {whole}"
        one = lengths.get("dsf", {}).get(half)
        other = lengths.get(method, {}).get(whole)
        if one is None or other is None:
            yield Verdict(claim, "", "not run")
            continue
        text = f"kNN {fixed(one.knn)} against {fixed(other.knn)}"
        yield Verdict(claim, text, compared(one.knn, other.knn, one.test_images))


def _head(book: Book) -> Iterator[Verdict]:
    for name in book.group("head"):
        if book.plan.every[name].method != "dsf":
            continue
        claim = "DSF learns with the published head"
        outcome = book.outcomes.get(name)
        if outcome is None:
            yield Verdict(claim, "", "not run")
            continue
        if outcome.failure:
            yield Verdict(claim, f"failed: {outcome.failure}", "did not hold")
            continue
        lost = stalled(outcome)
        epochs = book.epochs(name)
        text = f"kNN {fixed(outcome.knn)} after {epochs} epochs, {'stalled' if lost else 'learns'}"
        yield Verdict(claim, text, "did not hold" if lost else "held")


def _transfer(book: Book) -> Iterator[Verdict]:
    for name, asked in book.plan.transfers.items():
        found = transfer.rows(book, name)
        own = [row for row in found if book.plan.every[row.names[0]].method == "dsf"]
        rivals = [row for row in found if row not in own]
        if not own or not rivals:
            continue
        published = any(value is not None for value in own[0].theirs)
        for place, data in enumerate(asked.data_names):
            if published and own[0].theirs[place] is None:
                continue  # of this one the paper says nothing
            claim = f"DSF transfers best to {data}"
            ours, theirs = own[0].ours[place], {row.label: row.ours[place] for row in rivals}
            done = sum(map(math.isfinite, (ours, *theirs.values())))
            outcome = book.get(own[0].names[place])
            if outcome is None or done < len(found):
                yield Verdict(claim, f"{done} of {len(found)} encoders", "not run")
                continue
            best = max(theirs, key=lambda label: theirs[label])
            text = f"{fixed(ours)}; best rival {best} with {fixed(theirs[best])}"
            yield Verdict(claim, text, compared(ours, theirs[best], outcome.test_images))


def _margin(book: Book) -> Iterator[Verdict]:
    if "dsf" not in book.plan.methods:
        return
    claim = "The margin grows over training"
    found = longest(book, "dsf")
    values = [y for _, y in found[1].curve("margin") if math.isfinite(y)] if found else []
    if not found or len(values) < 2:
        yield Verdict(claim, "", "not run")
        return
    text = f"{fixed(values[0])} to {fixed(values[-1])} (`{found[0]}`)"
    yield Verdict(claim, text, "held" if values[-1] > values[0] else "did not hold")


def _all(statuses: Sequence[Status]) -> Status:
    """What a claim about several comparisons is worth: as much as its worst."""
    order: tuple[Status, ...] = ("did not hold", "not run", "undecided", "held")
    return min(statuses, key=order.index)


_RULES = (
    _best_of_table,
    _reached,
    _over_seeds,
    _head,
    _temperature,
    _views,
    _half_the_epochs,
    _transfer,
    _margin,
)
