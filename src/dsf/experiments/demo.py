"""The demo: train on the embedded images, evaluate before and after, show it on a page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dsf.evaluation import KNN, LinearFast, Subject
from dsf.experiments import build
from dsf.experiments.evaluations import Evaluator
from dsf.experiments.looks import make_gallery, view_picture
from dsf.experiments.page import Pictures, make_page, read_run
from dsf.experiments.page.accuracy import UNTRAINED
from dsf.experiments.recipe import load_recipe
from dsf.experiments.run import CONFIG, LOCK, RESULTS, train, write_results
from dsf.experiments.settings import Settings
from dsf.experiments.subjects import about_run, load_run
from dsf.files import write_file

RECIPE = "demo"
PAGE = "report.html"
# Settings with which it takes a minute: enough to see that all works, and that it learns.
QUICK = ("epochs=1", "schedule.warmup_epochs=0.25", "knn.every=1")


class Demo(NamedTuple):
    """What the demo leaves behind: the results by name, and the page."""

    results: dict[str, Any]
    page: Path


def run_demo(
    folder: Path | str,
    overrides: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
    show: bool = True,
    begin: Callable[[], None] = lambda: None,
) -> Demo:
    """Run the demo, or go on with one that was stopped.

    Args:
        folder: of the run.
        overrides: settings to change, ``key=value`` each.
        say: told what happens next.
        show: a bar or lines on the standard error while it trains.
        begin: called once the run can be kept in the folder, before the work.
    """
    folder = Path(folder)
    _check(folder)
    begin()
    settings = load_recipe(RECIPE, list(overrides))
    resolved = build.resolve(settings)
    evaluator = Evaluator(resolved, torch.device(resolved.device))
    say("evaluating the untrained encoder")
    untrained = build.build_method(resolved).to(resolved.device)
    before = evaluator.subject(untrained, about_run(resolved))
    results = _evaluate(resolved, before, UNTRAINED)
    done = (folder / RESULTS).is_file()
    say(f"{folder} is trained already" if done else f"training in {folder}")
    train(settings, folder, resume=(folder / CONFIG).is_file(), show=show)
    say("evaluating the trained encoder")
    _, trained, checkpoint = load_run(folder, resolved.device)
    after = evaluator.subject(trained, about_run(resolved, checkpoint))
    results |= _evaluate(resolved, after)
    write_results(folder, results)
    page = folder / PAGE
    write_file(page, demo_page(folder, resolved, before, after).encode())
    return Demo(results, page)


def _evaluate(settings: Settings, subject: Subject, prefix: str = "") -> dict[str, Any]:
    neighbours = KNN(settings.knn.k, settings.knn.temperature)
    protocols = (neighbours.at_most(len(subject.task.train)), LinearFast())
    found = {item.name: item.evaluate(subject, settings.seed).entry() for item in protocols}
    return {f"{prefix}{name}": entry for name, entry in found.items()}


def demo_page(folder: Path, settings: Settings, before: Subject, after: Subject) -> str:
    """The page of the demo.

    Args:
        folder: of the run.
        settings: resolved ones.
        before: the untrained encoder.
        after: the trained one.
    """
    encoders = [("before training", before), ("after training", after)]
    pictures = Pictures(
        (view_picture(settings),),
        (make_gallery(settings.data.name, encoders),),
        {RECIPE: after.task.names},
    )
    epochs = "1 epoch" if settings.epochs == 1 else f"{settings.epochs} epochs"
    lead = (
        f"An encoder ({settings.encoder.name}) was trained on {len(after.task.train):,} small "
        f"photographs for {epochs}, with {settings.views.count} random views of "
        "each at a time. It saw no labels: they serve only to measure what it learned."
    )
    return make_page("DSF demo", lead, {RECIPE: read_run(folder)}, pictures).html


def _check(folder: Path) -> None:
    """Fail before any work if the run could not be kept there."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(path.name != LOCK for path in folder.iterdir()) and not (folder / CONFIG).is_file():
        raise FileExistsError(f"{folder} is not empty and holds no run: take another folder")
