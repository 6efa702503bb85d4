"""``dsf train``: a run by a recipe, or an estimate of what it would take."""

import argparse
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from dsf.commands.parser import Parser, UsageError, asked

if TYPE_CHECKING:
    from dsf.experiments import Settings

# What EX_TEMPFAIL means elsewhere: not done, try again.
STOPPED = 75


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "train",
        help="train by a recipe",
        description="Train an encoder. Any setting can be changed by its dotted path; all of them\n"
        "are in the run's config.yaml, which is a recipe itself. Asked to stop by\n"
        f"SIGTERM or SIGINT it saves and exits with {STOPPED}.",
        example="dsf train cifar10-dsf epochs=60 optimiser.lr=0.03\n"
        "dsf train cifar10-dsf --resume\n"
        "dsf train imagenette-dsf --dry-run",
    )
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="a recipe's name, or a .yaml file"
    )
    parser.add_argument(
        "overrides", metavar="KEY=VALUE", nargs="*", default=[], help="settings to change"
    )
    parser.add_argument(
        "-o",
        "--run",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="the run's folder (runs/RECIPE)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the newest whole checkpoint"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="estimate memory, speed and hours; start nothing"
    )
    parser.add_argument("--list", action="store_true", help="show the recipes")
    parser.add_argument(
        "--settings",
        action="store_true",
        help="show all settings with their meaning",
    )
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> int | None:
    if options.list:
        _list()
        return None
    recipe, overrides = options.recipe, list(options.overrides)
    if recipe is not None and "=" in recipe:  # a resumed run needs no recipe
        recipe, overrides = None, [recipe, *overrides]
    folder = options.folder
    if recipe is None:
        if not (options.resume and folder):
            raise UsageError("give a RECIPE, or -o FOLDER --resume; see `dsf train --help`")
        if not (folder / "config.yaml").is_file():
            from dsf.experiments.nearby import run_hint

            raise UsageError(
                f"{folder} holds no run to resume: it has no config.yaml{run_hint(folder)}"
            )
        recipe = str(folder / "config.yaml")
    elif options.resume and folder is None and Path(recipe).name == "config.yaml":
        run = Path(recipe).parent  # not another one, which would start from the beginning
        raise UsageError(f"to go on with the run in {run}: dsf train -o {quote(str(run))} --resume")
    if options.settings:
        _explain(recipe, overrides)
        return None
    if options.dry_run:
        if options.resume:
            raise UsageError("--dry-run estimates a whole run: leave --resume out")
        _estimate(recipe, overrides)
        return None
    return _run(recipe, overrides, folder or Path("runs") / Path(recipe).stem, options.resume)


def _run(recipe: str, overrides: list[str], folder: Path, resume: bool) -> int | None:
    from dsf import distributed
    from dsf.experiments import train
    from dsf.experiments.run import labelled
    from dsf.training import Interrupted

    settings = _settings(recipe, overrides)
    try:
        with asked() as begin:
            train(settings, folder, resume, begin=begin)
    except Interrupted as stopped:
        if distributed.launched()[0] == 0:
            print(f"{stopped}; to go on: dsf train -o {quote(str(folder))} --resume")
        return STOPPED
    if distributed.launched()[0] == 0:
        words = "knn linear" if labelled(settings) else "knn --leave-one-out"
        shown = quote(str(folder))
        evaluation = f"dsf eval {shown} {words}, or "
        usable = labelled(settings, ["train"])
        print(f"next: {evaluation if usable else ''}dsf report {shown}", file=sys.stderr)
        print(folder)
    return None


def _settings(recipe: str, overrides: list[str]) -> "Settings":
    from dsf.experiments import load_recipe

    with asked():
        return load_recipe(recipe, overrides)


def _explain(recipe: str, overrides: list[str]) -> None:
    from dsf.experiments.explain import explain

    print(explain(_settings(recipe, overrides)), end="")


def _estimate(recipe: str, overrides: list[str]) -> None:
    from dsf.experiments.estimate import estimate, lines

    settings = _settings(recipe, overrides)
    with asked():  # whether it could be done is all that is asked
        print(*lines(estimate(settings)), sep="\n")


def _list() -> None:
    from dsf.experiments import describe, recipe_names

    for name in recipe_names():
        about = describe(name)
        print(f"{name}\n  reaches: {about.reaches}\n  hardware: {about.hardware}")
