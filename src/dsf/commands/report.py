"""``dsf report``: runs on one page."""

import argparse
import sys
from pathlib import Path

from dsf.commands.parser import Parser, asked


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "report",
        help="show runs side by side on one page",
        description="Write one HTML page about a run, or about several side by side: settings\n"
        "that differ, accuracies, curves, cost, views, neighbours, maps of features,\n"
        "confusion and corruptions. It needs no network; what a run lacks is said in\n"
        "its place.",
        example="dsf report runs/demo\n"
        "dsf report runs/dsf runs/moco -o both.html --figures figures",
    )
    parser.add_argument("folders", metavar="RUN", nargs="+", type=Path, help="folders of runs")
    parser.add_argument(
        "-o",
        dest="page",
        type=Path,
        metavar="FILE",
        help="the page, written anew if it is there (RUN/report.html; of several report.html)",
    )
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="the figures too, as SVG and PNG"
    )
    parser.add_argument("--title", help="of the page (the runs' names)")
    parser.add_argument(
        "--no-pictures",
        dest="pictures",
        action="store_false",
        help="leave out views and features, which take time",
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (auto)")
    parser.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> None:
    from dsf.experiments.report import write_report

    with asked() as begin:
        made = write_report(
            options.folders,
            options.page,
            options.figures,
            options.title,
            options.pictures,
            options.device,
            say=lambda text: print(text, file=sys.stderr, flush=True),
            begin=begin,
        )
    if made.figures:
        print(f"{len(made.figures)} figures in {options.figures}")
    print(made.page)
