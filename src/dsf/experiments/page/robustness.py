"""Corrupted images, confused classes, and what kappa tells: from results.json alone."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dsf.experiments.page.accuracy import LEFT_OUT, accuracies, title
from dsf.experiments.page.bars import bar_chart
from dsf.experiments.page.changed import run_image_notes
from dsf.experiments.page.chart import Point, Series, line_chart
from dsf.experiments.page.document import figure, note, notes, section
from dsf.experiments.page.figures import Figures
from dsf.experiments.page.lack import Lack, advice
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.matrix import matrix_chart
from dsf.experiments.page.numbers import number, percent
from dsf.experiments.page.run import Run, Runs, as_float, as_mapping, slug, whose
from dsf.experiments.page.tables import DASH, table

_CORRUPTION = "corruption"
_KAPPA = "\N{GREEK SMALL LETTER KAPPA}"
_GEOMETRY = {
    "alignment": "mean squared distance of the views of an image: lower is closer",
    "uniformity": "how evenly images fill the sphere: lower is more even",
    "effective_rank": "directions that the features use",
    "class_separation": "share of the variance between the means of classes",
}
_OF_KAPPA = {
    "error_auroc": f"how well low {_KAPPA} finds the images that kNN gets wrong: 0.5 is chance",
    "severity_spearman": f"rank correlation of {_KAPPA} with the severity of corruptions",
}


def corruption_section(runs: Runs, figures: Figures, lacks: Mapping[str, Lack]) -> Markup:
    """Errors by kind of corruption; ``lacks`` is what data sets lack, by label."""
    heading = "Corrupted images"
    shown = _corruption(runs)
    entries = {label: as_mapping(run.results.get(shown)) for label, run in runs.items()}
    values: dict[str, dict[str, float]] = {}
    measured = []
    for label, entry in entries.items():
        details = as_mapping(entry.get("details"))
        by_type = as_mapping(details.get("by_type"))
        found = {name.replace("_", " "): 100 * as_float(v) for name, v in by_type.items()}
        values[label] = found
        if any(map(math.isfinite, found.values())):
            measured.append(label)
    command = "dsf eval RUN corruption measures them"
    how = {label: advice(lacks.get(label), command) for label in runs if label not in measured}
    if not measured:
        missing = "results.json holds no errors on corrupted images"
        texts = {label: f"{missing}: {text}" for label, text in how.items()}
        return section("corruption", heading, *notes(texts))
    means = "; ".join(
        f"{whose(runs, label)}mean error {percent(as_float(entries[label].get('mce')))}, "
        f"without corruption {percent(as_float(entries[label].get('clean_error')))}"
        for label in measured
    )
    chart = bar_chart("corruption", heading, f"{means}.", values, "error, per cent", " %")
    text = (
        "How many test images a linear classifier, trained on clean ones, gets wrong once they "
        "are corrupted; the mean over severities. Lower is better."
    )
    if shown != _CORRUPTION:
        text += f" Shown is the {title(shown)}."
    without = (note(f"{label}: not measured: {text}") for label, text in how.items())
    picture = figure(figures.draw(chart), f"{means[:1].upper()}{means[1:]}.")
    return section("corruption", heading, tag("p", text), picture, *without)


def confusion_section(
    runs: Runs,
    figures: Figures,
    classes: Mapping[str, Sequence[str]],
    lacks: Mapping[str, Lack],
) -> Markup:
    """A confusion matrix for each run.

    Args:
        runs: by label.
        figures: to draw in.
        classes: their names, where they are known, by label.
        lacks: what data sets lack, by label.
    """
    heading = "Confusion matrix"
    parts, without, of_training = [], [], False
    for label, run in runs.items():
        found = _confusion(run)
        if found is None:
            how = advice(
                lacks.get(label),
                "dsf eval RUN linear makes one",
                "dsf eval RUN knn --leave-one-out makes one",
            )
            missing = f"results.json holds no confusion matrix: {how}"
            without.append(note(f"{whose(runs, label)}{missing}"))
            continue
        by, counts = found
        of_training = of_training or by.endswith(LEFT_OUT)
        names = list(classes.get(label, ()))
        if len(names) != len(counts):
            names = [str(number) for number in range(len(counts))]
        name = "confusion" if len(runs) == 1 else f"confusion-{slug(label)}"
        caption = f"{by} of {label}" if len(runs) > 1 else by
        chart = matrix_chart(name, caption, counts, _distinct(names))
        parts.append(figure(figures.draw(chart), chart.description, heading=caption))
    images = "images" if of_training else "test images"
    text = (
        f"Rows are the true classes, columns what {images} were named; the stronger the colour, "
        "the larger the share of the row. The diagonal is right."
    )
    content = [tag("p", text), tag("div", *parts, class_="grid")] if parts else []
    return section("confusion", heading, *content, *without)


def geometry_section(runs: Runs, figures: Figures) -> Markup | None:
    """What ``dsf eval geometry`` found; None if it was never run."""
    found = {label: as_mapping(run.results.get("geometry")) for label, run in runs.items()}
    found = {label: entry for label, entry in found.items() if entry}
    if not found:
        return None
    wanted = {
        f"{part}_{name}": (f"{part}: {name.replace('_', ' ')}", text)
        for part in ("backbone", "projection")
        for name, text in _GEOMETRY.items()
    }
    wanted |= {
        name: (f"{_KAPPA}: {name.replace('_', ' ')}", text) for name, text in _OF_KAPPA.items()
    }
    rows = []
    for key, (name, text) in wanted.items():
        values = [as_float(entry.get(key)) for entry in found.values()]
        if any(map(math.isfinite, values)):
            cells = [number(v) if math.isfinite(v) else DASH for v in values]
            rows.append((tag("span", name, tag("small", text)), *cells))
    header = ("", *(("value",) if len(runs) == 1 else tuple(found)))
    content = table("Geometry of the features", header, rows, numbers=range(1, len(header)))
    changed = (
        note(f"{whose(runs, label)}{text}")
        for label in found
        for text in run_image_notes(runs[label], {"geometry": found[label]}, title)
    )
    return section("geometry", "Geometry", content, *changed, _severity(runs, found, figures))


def _severity(
    runs: Runs, found: Mapping[str, Mapping[str, Any]], figures: Figures
) -> Markup | None:
    """Kappa over severity: a line for each corruption, or for each of several runs their mean."""
    several = len(runs) > 1
    lines = []
    for label in runs:
        details = as_mapping(found.get(label, {}).get("details"))
        by_kind = {
            kind.replace("_", " "): [as_float(value) for value in values]
            for kind, entry in as_mapping(details.get("severity")).items()
            if isinstance(values := as_mapping(entry).get("kappa"), list)
        }
        if several:
            means = [statistics.fmean(values) for values in zip(*by_kind.values(), strict=False)]
            lines.append(Series(label, _over_severity(means)))
        else:
            lines += [Series(kind, _over_severity(values)) for kind, values in by_kind.items()]
    if not any(line.finite for line in lines):
        return None
    title = f"{_KAPPA} of corrupted images"
    text = (
        f"The mean {_KAPPA} of the views of a test image, by the severity of its corruption; 0 is "
        f"the image itself. Where it falls, {_KAPPA} tells that the encoder is less sure."
    )
    chart = line_chart("kappa-severity", title, text, lines, "severity", f"mean {_KAPPA}")
    return figure(figures.draw(chart), text, heading=title)


def _over_severity(values: Sequence[float]) -> list[Point]:
    return [(float(severity), value) for severity, value in enumerate(values)]


def _corruption(runs: Runs) -> str:
    """The evaluation to show of all runs: the usual one, or else what most of them have."""
    every = [name for run in runs.values() for name in run.results]
    found = Counter(name for name in every if name.split()[:1] == [_CORRUPTION])
    return _CORRUPTION if _CORRUPTION in found or not found else found.most_common(1)[0][0]


def _confusion(run: Run) -> tuple[str, list[list[int]]] | None:
    """The matrix of the linear classifier, or else of kNN, and which it is."""
    known = accuracies(run.results)
    for name, part, by in (
        ("linear", None, "linear classifier"),
        ("linear-paper", None, "linear classifier, the paper's"),
        ("knn", "backbone", "kNN, backbone"),
        ("knn leave_one_out=True", "backbone", f"kNN, backbone, {LEFT_OUT}"),
    ):
        details = as_mapping(as_mapping(run.results.get(name)).get("details"))
        counts = (as_mapping(details.get(part)) if part else details).get("confusion")
        if any(row.name == by for row in known) and _is_square(counts):
            return by, counts  # type: ignore[return-value]
    return None


def _is_square(counts: object) -> bool:
    if not isinstance(counts, list) or not counts:
        return False
    return all(
        isinstance(row, list) and len(row) == len(counts) and all(type(n) is int for n in row)
        for row in counts
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Classes of the same name are told apart by their number."""
    twice = {name for name in names if names.count(name) > 1}
    return [f"{name} ({n})" if name in twice else name for n, name in enumerate(names)]
