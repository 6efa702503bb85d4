"""``dsf reproduce``: the paper's runs, and the document of their results."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dsf.commands.parser import Parser, UsageError
from dsf.commands.train import STOPPED

if TYPE_CHECKING:
    from dsf.experiments.paper.plan import Plan

_DESCRIPTION = f"""\
Train and evaluate those of the paper's runs that are missing; each leaves one
file in results/PLAN. What is done is not done again, what was stopped goes on;
asked to stop by SIGTERM or SIGINT it saves and exits with {STOPPED}. With settings
of your own (KEY=VALUE) it needs --results elsewhere."""


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "reproduce",
        help="run the paper's experiments",
        usage="dsf reproduce [GROUP|RUN ...] [KEY=VALUE ...] [options]",
        description=_DESCRIPTION,
        example="dsf reproduce --list\ndsf reproduce tuning/dsf table1/dsf",
    )
    parser.add_argument("words", metavar="GROUP|RUN", nargs="*", help="what, or `all`")
    parser.add_argument("--list", action="store_true", help="show where the runs stand")
    parser.add_argument("--render", action="store_true", help="only write the document")
    parser.add_argument(
        "--weights", action="store_true", help="only export encoders in half precision"
    )
    parser.add_argument(
        "--again", action="store_true", help="forget what there is of them, and begin anew"
    )
    parser.add_argument(
        "--plan", metavar="PLAN", default="cifar10", help="a plan's name or file (cifar10)"
    )
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="(results/PLAN)")
    parser.add_argument(
        "--runs", type=Path, metavar="FOLDER", help="(runs/paper/ and the name of that)"
    )
    parser.add_argument(
        "-o",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="of the document (docs), or weights (weights/PLAN)",
    )
    parser.set_defaults(run=_reproduce, overrides=[], words_anywhere=True)


def _reproduce(options: argparse.Namespace) -> int | None:
    from dsf.experiments.paper.document import render
    from dsf.experiments.paper.plan import load_plan

    plan = load_plan(options.plan)
    usual = Path("results") / plan.name
    results = options.results or usual
    every = [*options.words, *options.overrides]
    words = [word for word in every if "=" not in word]
    overrides = [word for word in every if "=" in word]
    if overrides and results.resolve() == usual.resolve():
        raise UsageError(
            f"{overrides[0]}: {usual} holds the runs of the plan and no others; "
            "give --results another folder"
        )
    try:
        names = plan.select(words)
    except ValueError as error:
        raise UsageError(str(error)) from None
    runs = options.runs or Path("runs") / "paper" / results.resolve().name
    if options.render:
        own = results.resolve() == usual.resolve()
        print(render(plan, results, options.folder or (Path("docs") if own else results)))
        return None
    if options.list:
        _show(plan, names or list(plan.every), results, runs)
        return None
    if not names:
        raise UsageError("give a GROUP or a RUN; `dsf reproduce --list` shows them")
    if options.weights:
        _export(names, runs, options.folder or Path("weights") / plan.name)
        return None
    return _run(plan, names, results, runs, overrides, options.again)


def _run(
    plan: "Plan",
    names: list[str],
    results: Path,
    runs: Path,
    overrides: list[str],
    again: bool,
) -> int | None:
    from dsf.experiments.paper.listing import shown_outcome
    from dsf.experiments.paper.outcome import read_outcome
    from dsf.experiments.paper.reproduce import reproduce
    from dsf.training import Interrupted

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        reproduce(plan, names, results, runs, overrides, again, say)
    except Interrupted as stopped:
        print(f"{stopped}; the same command goes on{', without --again' if again else ''}")
        return STOPPED
    except ModuleNotFoundError as error:  # an optional package, such as that of frost's textures
        raise ValueError(str(error)) from error
    for name in names:
        outcome = read_outcome(results, name)
        if outcome is not None:
            print(f"{name}: {outcome.failure or shown_outcome(outcome)}")
    return None


def _export(names: list[str], runs: Path, folder: Path) -> None:
    from dsf.experiments.paper.weights import export_weights

    for name in names:
        for path in export_weights(runs / name, folder / name):
            print(f"{path}  {path.stat().st_size:,} bytes")


def _show(plan: "Plan", names: list[str], results: Path, runs: Path) -> None:
    from dsf.experiments.paper.listing import standings, strangers

    found = standings(plan, names, results, runs)
    width = max(len(item.name) for item in found)
    for item in found:
        spent = item.state in ("done", "failed", "other")
        minutes = f"{'' if spent else '~'}{item.minutes:.1f} min"
        state = "other settings" if item.state == "other" else item.state
        print(f"{item.name:<{width}}  {state:<14}  {minutes:>10}  {item.about}".rstrip())
    rest = sum(item.minutes for item in found if item.state in ("partial", "not run"))
    done = sum(item.state == "done" for item in found)
    print(f"{done} of {len(found)} done; the rest takes about {rest:.0f} GPU minutes")
    for path in strangers(plan, results):
        print(f"{path} is of no run of this plan")
