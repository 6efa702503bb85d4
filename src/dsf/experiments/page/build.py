"""The page of one run, put together."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dsf.experiments.page import sections
from dsf.experiments.page.document import document, note
from dsf.experiments.page.features import Look
from dsf.experiments.page.maps import map_style
from dsf.experiments.page.markup import Markup, tag
from dsf.experiments.page.numbers import percent, points
from dsf.experiments.page.run import Run


@dataclass(frozen=True)
class Gallery:
    """What is shown of images and features.

    Args:
        sheet: images and their views, see ``dsf.data.sheet``.
        views: how many views a row of it.
        train_images: (N, 3, H, W) in uint8.
        train_labels: (N,).
        test_images: (T, 3, H, W) in uint8.
        test_labels: (T,).
        queries: (Q,), the test images whose neighbours are shown.
        classes: the names of the labels.
        before: the untrained encoder.
        after: the trained one.
    """

    sheet: Image.Image
    views: int
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    queries: Tensor
    classes: tuple[str, ...]
    before: Look | None = None
    after: Look | None = None


def run_page(
    title: str,
    lead: str,
    run: Run,
    gallery: Gallery | None = None,
) -> str:
    """The page as HTML; the same for the same input.

    Args:
        title: its heading.
        lead: what was done, in a sentence or two.
        run: of ``read_run``.
        gallery: the pictures; without them the page has curves and tables.
    """
    style = "" if gallery is None else map_style(sections.MAP, gallery.classes)
    return document(title, _body(title, lead, run, gallery), style)


def _body(title: str, lead: str, run: Run, gallery: Gallery | None) -> Iterator[Markup]:
    yield tag("header", tag("h1", title), tag("p", lead), _hero(run))
    yield tag("main", *_parts(run, gallery))
    yield tag("footer", f"Made by dsf from {run.folder}.")


def _parts(run: Run, gallery: Gallery | None) -> Iterator[Markup]:
    for problem in run.problems:
        yield note(problem)
    yield sections.accuracy_section(run.results, None if gallery is None else len(gallery.classes))
    epochs = run.config.get("epochs")
    yield sections.curves_section(run, epochs if isinstance(epochs, int) else None)
    if gallery is not None:
        yield sections.views_section(gallery.sheet, gallery.views)
        yield sections.neighbours_section(
            gallery.before,
            gallery.after,
            gallery.train_images,
            gallery.train_labels,
            gallery.test_images[gallery.queries],
            gallery.test_labels[gallery.queries],
            gallery.classes,
        )
        yield sections.maps_section(
            gallery.before, gallery.after, gallery.test_labels, gallery.classes
        )
    yield sections.cost_section(run.results)
    yield sections.pairs_section(
        "settings", "Settings", _SETTINGS, run.config, "config.yaml holds no settings."
    )
    yield sections.pairs_section(
        "environment",
        "Environment",
        _ENVIRONMENT,
        run.environment,
        "environment.json holds nothing.",
    )


_SETTINGS = "All settings of the run; each can be given to dsf train as key=value."
_ENVIRONMENT = "What it ran on."


_HERO = {
    "kNN, backbone": "kNN accuracy on test images",
    "linear classifier": "linear accuracy on test images",
}


def _hero(run: Run) -> Markup | None:
    cards = []
    for row in sections.accuracies(run.results):
        if row.name in _HERO and math.isfinite(row.after):
            before = tag("small", f"{percent(row.before)} \N{RIGHTWARDS ARROW} ")
            gain = row.after - row.before
            known = math.isfinite(gain)
            cards.append(
                tag(
                    "li",
                    tag("span", _HERO[row.name]),
                    tag("b", before if known else None, percent(row.after)),
                    tag("span", f"{points(gain)} points") if known else None,
                )
            )
    return tag("ul", *cards, class_="hero") if cards else None
