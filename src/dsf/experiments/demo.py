"""The demo: train on the embedded images, evaluate before and after, show it on a page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dsf.data.files import write_file
from dsf.data.sheet import view_sheet
from dsf.evaluation import KNN, Features, LinearFast, Subject
from dsf.experiments import build
from dsf.experiments.evaluations import Evaluator
from dsf.experiments.page import Gallery, Look, look, read_run, run_page
from dsf.experiments.page.accuracy import UNTRAINED
from dsf.experiments.page.features import first_of_each_class
from dsf.experiments.recipe import load_recipe
from dsf.experiments.run import CONFIG, train, write_results
from dsf.experiments.settings import Settings
from dsf.experiments.subjects import about_run, load_run

RECIPE = "demo"
PAGE = "report.html"
# Settings with which it takes a minute: enough to see that all works, and that it learns.
QUICK = ("epochs=1", "schedule.warmup_epochs=0.25", "knn.every=1")
_ROWS, _VIEWS = 6, 8  # of the sheet


class Demo(NamedTuple):
    """What the demo leaves behind: the results by name, and the page."""

    results: dict[str, Any]
    page: Path


def run_demo(
    folder: Path | str,
    overrides: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
    show: bool = True,
) -> Demo:
    """Run the demo, or go on with one that was stopped.

    Args:
        folder: of the run.
        overrides: settings to change, ``key=value`` each.
        say: told what happens next.
        show: a bar or lines on the standard error while it trains.
    """
    folder = Path(folder)
    _check(folder)
    settings = load_recipe(RECIPE, list(overrides))
    resolved = build.resolve(settings)
    evaluator = Evaluator(resolved, torch.device(resolved.device))
    say("evaluating the untrained encoder")
    untrained = build.build_method(resolved).to(resolved.device)
    before = evaluator.subject(untrained, about_run(resolved))
    results = _evaluate(resolved, before, UNTRAINED)
    say(f"training in {folder}")
    train(settings, folder, resume=(folder / CONFIG).is_file(), show=show)
    say("evaluating the trained encoder")
    _, trained, checkpoint = load_run(folder, resolved.device)
    after = evaluator.subject(trained, about_run(resolved, checkpoint))
    results |= _evaluate(resolved, after)
    write_results(folder, results)
    page = folder / PAGE
    features = [(part.features("train"), part.features("test")) for part in (before, after)]
    write_file(page, make_page(folder, resolved, *features).encode())
    return Demo(results, page)


def _evaluate(settings: Settings, subject: Subject, prefix: str = "") -> dict[str, Any]:
    neighbours = KNN(settings.knn.k, settings.knn.temperature)
    protocols = (neighbours.at_most(len(subject.task.train)), LinearFast())
    found = {item.name: item.evaluate(subject, settings.seed).entry() for item in protocols}
    return {f"{prefix}{name}": entry for name, entry in found.items()}


def make_page(
    folder: Path,
    settings: Settings,
    before: tuple[Features, Features],
    after: tuple[Features, Features],
) -> str:
    """The page of the demo.

    Args:
        folder: of the run.
        settings: resolved ones.
        before: features of the training and test images by the untrained encoder.
        after: and by the trained one.
    """
    train_split, test_split = (build.load_split(settings, name) for name in ("train", "test"))
    train_labels, test_labels = before[0].labels.cpu(), before[1].labels.cpu()
    queries = first_of_each_class(test_labels)
    recipe = build.view_recipe(settings)

    def seen(features: tuple[Features, Features]) -> Look:
        of_train, of_test = (part.backbone for part in features)
        return look(of_train, train_labels, of_test, test_labels, queries)

    gallery = Gallery(
        view_sheet(train_split, _ROWS, _VIEWS, recipe, settings.views.size, settings.seed),
        _VIEWS,
        train_split.images(),
        train_labels,
        test_split.images(),
        test_labels,
        queries,
        train_split.classes,
        seen(before),
        seen(after),
    )
    lead = (
        f"An encoder ({settings.encoder.name}) was trained on {len(train_labels):,} small "
        f"photographs for {settings.epochs} epochs, with {settings.views.count} random views of "
        "each at a time. It saw no labels: they serve only to measure what it learned."
    )
    return run_page("DSF demo", lead, read_run(folder), gallery)


def _check(folder: Path) -> None:
    """Fail before any work if the run could not be kept there."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / CONFIG).is_file():
        raise FileExistsError(f"{folder} is not empty and holds no run: take another folder")
