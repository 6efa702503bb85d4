"""``dsf demo``: the main job on embedded images."""

import argparse
import sys
from pathlib import Path

from dsf.commands.parser import Parser

_FOLDER = Path("runs/demo")


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "demo",
        help="train, evaluate and report on embedded images",
        description="Train a small encoder with 8 views an image on the 5,000 images inside the\n"
        "package, measure it before and after, and show it all on one HTML page, whose\n"
        "path is printed last. Minutes on two CPU cores. Stopped at any point, the same\n"
        "command goes on.",
        example="dsf demo -o runs/demo",
    )
    parser.add_argument(
        "-o",
        dest="folder",
        type=Path,
        default=_FOLDER,
        metavar="FOLDER",
        help=f"the run's folder ({_FOLDER})",
    )
    parser.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int | None:
    from dsf.commands.train import STOPPED
    from dsf.experiments.demo import run_demo
    from dsf.experiments.page.accuracy import accuracies
    from dsf.experiments.page.numbers import percent, points
    from dsf.training import Interrupted

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        results, page = run_demo(options.folder, say=say)
    except Interrupted as stopped:
        print(f"{stopped}; to go on: dsf demo -o {options.folder}")
        return STOPPED
    rows = accuracies(results)
    width = max(len(row.name) for row in rows)
    for row in rows:
        change = f"{percent(row.before)} before, {percent(row.after)} after training"
        print(f"{row.name.ljust(width)}  {change}  ({points(row.after - row.before)} points)")
    print(page)
    return None
