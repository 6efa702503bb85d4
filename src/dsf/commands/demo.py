"""``dsf demo``: the main job on embedded images."""

import argparse
import sys
from pathlib import Path
from shlex import quote

from dsf.commands.parser import Parser, asked

_FOLDER, _QUICK_FOLDER = Path("runs/demo"), Path("runs/demo-quick")


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "demo",
        help="train, evaluate and report on embedded images",
        description="Train a small encoder with 8 views an image on the 5,000 images inside the\n"
        "package, measure it before and after, and show it all on one HTML page, whose\n"
        "path is printed last. Minutes on two CPU cores, one or two with --quick. Stopped\n"
        "at any point, the same command goes on.",
        example="dsf demo -o runs/demo",
    )
    parser.add_argument(
        "-o",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help=f"the run's folder ({_FOLDER}, or {_QUICK_FOLDER})",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one epoch only, to see whether it works here"
    )
    parser.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int | None:
    from dsf.commands.train import STOPPED
    from dsf.experiments.demo import QUICK, run_demo
    from dsf.experiments.page.accuracy import accuracies
    from dsf.experiments.page.numbers import percent, points
    from dsf.training import Interrupted

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    folder = options.folder or (_QUICK_FOLDER if options.quick else _FOLDER)
    try:
        with asked() as begin:
            results, page = run_demo(folder, QUICK if options.quick else (), say=say, begin=begin)
    except Interrupted as stopped:
        quick = "--quick " if options.quick else ""
        print(f"{stopped}; to go on: dsf demo {quick}-o {quote(str(folder))}")
        return STOPPED
    rows = accuracies(results)
    width = max(len(row.name) for row in rows)
    for row in rows:
        change = f"{percent(row.before)} before, {percent(row.after)} after training"
        print(f"{row.name.ljust(width)}  {change}  ({points(row.after - row.before)} points)")
    print(page)
    return None
