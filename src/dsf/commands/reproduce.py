"""``dsf reproduce``: the paper's runs, and the document of their results."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dsf.commands.parser import Parser, UsageError, asked, positive
from dsf.commands.train import STOPPED

if TYPE_CHECKING:
    from dsf.experiments.paper.plan import Plan
    from dsf.experiments.paper.selection import Selection

_DESCRIPTION = f"""\
Train and evaluate what is missing of the paper's runs; each leaves one file in
results/PLAN. NAME is that of the first of the plans cifar10, imagenet100 and
imagenette, PLAN/NAME of one. Stopped by a signal it saves, and exits with {STOPPED}."""
_EXAMPLE = "dsf reproduce tuning/dsf table1/dsf imagenette/tuning/dsf --jobs 3"


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "reproduce",
        help="run the paper's experiments",
        usage="dsf reproduce [GROUP|RUN ...] [KEY=VALUE ...] [options]",
        description=_DESCRIPTION,
        example=_EXAMPLE,
    )
    parser.add_argument("words", metavar="GROUP|RUN", nargs="*", default=[], help="what, or `all`")
    parser.add_argument("--list", action="store_true", help="show where the runs stand")
    parser.add_argument(
        "--render", action="store_true", help="only write the document, of all plans"
    )
    parser.add_argument(
        "--weights", action="store_true", help="only export encoders in half precision"
    )
    parser.add_argument("--again", action="store_true", help="forget what there is of them")
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="runs at a time, on all GPUs (1)"
    )
    parser.add_argument(
        "--ahead",
        type=positive,
        default=0,
        metavar="SECONDS",
        help="begin the next so long before one has trained (0)",
    )
    parser.add_argument("--plan", metavar="PLAN", help="only this one: its name or file")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="of one plan (results/PLAN)")
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


class _Place(NamedTuple):
    """Some runs of a plan, and where their results and folders lie."""

    plan: "Plan"
    names: list[str]
    results: Path
    runs: Path

    @property
    def usual(self) -> bool:
        """Whether the results lie where those of the plan belong."""
        return self.results.resolve() == _usual(self.plan).resolve()


def _usual(plan: "Plan") -> Path:
    return Path("results") / plan.name


def _reproduce(options: argparse.Namespace) -> int | None:
    from dsf.experiments.paper.plan import load_plan, plan_names

    every = [*options.words, *options.overrides]
    words = [word for word in every if "=" not in word]
    overrides = [word for word in every if "=" in word]
    with asked():
        plans = [load_plan(name) for name in ([options.plan] if options.plan else plan_names())]
    if options.render and words:
        raise UsageError(f"--render writes the whole document: leave {words[0]} out")
    if not words and not options.list and not options.render:
        raise UsageError("give a GROUP or a RUN; `dsf reproduce --list` shows them")
    places = _places(_select(plans, words), options)
    for place in places if overrides else ():
        if place.usual:
            raise UsageError(
                f"{overrides[0]}: {_usual(place.plan)} holds the runs of the plan and no others; "
                "give --results another folder"
            )
    if options.render:
        _render(places, overrides, options)
        return None
    if options.list:
        for place in places:
            _show(place, bare=options.plan is not None)
        return None
    if options.weights:
        for place in places:
            _export(place, options.folder or Path("weights") / place.plan.name)
        return None
    return _run_all(places, overrides, options)


def _select(plans: "list[Plan]", words: list[str]) -> "list[Selection]":
    from dsf.experiments.paper.selection import Selection, select

    if not words:
        return [Selection(plan, list(plan.every)) for plan in plans]
    with asked():
        if len(plans) == 1:
            (plan,) = plans
            own = [it if plan.knows(it) else it.removeprefix(f"{plan.name}/") for it in words]
            return [Selection(plan, plan.select(own))]
        return select(plans, words)


def _places(selections: "list[Selection]", options: argparse.Namespace) -> list[_Place]:
    for name in ("results", "runs"):
        if getattr(options, name) is not None and len(selections) > 1:
            raise UsageError(f"--{name}: is the folder of one plan; say which by --plan")
    result = []
    for plan, names in selections:
        results = options.results or _usual(plan)
        runs = options.runs or Path("runs") / "paper" / results.resolve().name
        result.append(_Place(plan, names, results, runs))
    return result


def _render(places: list[_Place], overrides: list[str], options: argparse.Namespace) -> None:
    from dsf.experiments.paper.document import Book, render

    books = [Book.read(place.plan, place.results, overrides) for place in places]
    alone = places[0].results if options.plan else Path("docs")
    print(render(books, options.folder or alone))


def _run_all(places: list[_Place], overrides: list[str], options: argparse.Namespace) -> int | None:
    from dsf.experiments.paper.reproduce import check

    with asked():  # of all plans, before the work on the first
        for plan, names, results, runs in places:
            check(plan, names, results, runs, overrides, options.again, Path("weights") / plan.name)
    result = None
    for place in places:
        code = _run(place, overrides, options)
        if code == STOPPED:
            return code
        result = code or result
    return result


def _run(place: _Place, overrides: list[str], options: argparse.Namespace) -> int | None:
    from dsf.experiments.paper.jobs import reproduce_at_once
    from dsf.experiments.paper.listing import shown_outcome
    from dsf.experiments.paper.outcome import read_outcome
    from dsf.experiments.paper.reproduce import prepare, reproduce
    from dsf.training import Interrupted

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def command(name: str) -> list[str]:
        given = {"--plan": options.plan, "--results": options.results, "--runs": options.runs}
        chosen = [str(word) for key, value in given.items() if value for word in (key, value)]
        address = name if options.plan else plan.address(name)
        return ["reproduce", address, *overrides, *chosen]

    plan, names, results, runs = place
    again, lost = options.again, list[str]()
    try:
        kept = Path("weights") / plan.name
        with asked() as begin:
            if options.jobs == 1 and not options.ahead:
                reproduce(plan, names, results, runs, overrides, again, say, True, kept, begin)
            else:
                every = prepare(plan, names, results, runs, overrides, again, kept, begin)
                lost = reproduce_at_once(
                    plan, every, results, runs, command, options.jobs, overrides, say, options.ahead
                )
    except Interrupted as stopped:
        print(f"{stopped}; the same command goes on{', without --again' if again else ''}")
        return STOPPED
    except ModuleNotFoundError as error:  # an optional package, such as that of frost's textures
        raise ValueError(str(error)) from error
    for name in names:
        outcome = read_outcome(results, name)
        if outcome is not None:
            print(f"{name}: {outcome.failure or shown_outcome(outcome)}")
    return 1 if lost else None


def _export(place: _Place, folder: Path) -> None:
    from dsf.experiments.paper.weights import export_weights

    for name in place.names:
        if place.plan.every[name].finetuning is not None:
            raise UsageError(f"{name}: has no encoder of its own to export; take the run it is of")
    with asked() as begin:
        for name in place.names:
            paths = export_weights(place.runs / name, folder / name)
            begin()
            for path in paths:
                print(f"{path}  {path.stat().st_size:,} bytes")


def _show(place: _Place, bare: bool) -> None:
    from dsf.experiments.paper.listing import standings, strangers

    plan = place.plan
    found = standings(plan, place.names, place.results, place.runs)
    shown = {item.name: item.name if bare else plan.address(item.name) for item in found}
    width = max(map(len, shown.values()))
    for item in found:
        spent = item.state in ("done", "failed", "other")
        minutes = f"{'' if spent else '~'}{item.minutes:.1f} min"
        state = "other settings" if item.state == "other" else item.state
        print(f"{shown[item.name]:<{width}}  {state:<14}  {minutes:>10}  {item.about}".rstrip())
    rest = sum(item.minutes for item in found if item.state in ("partial", "not run"))
    done = sum(item.state == "done" for item in found)
    of = "" if bare else f"{plan.name}: "
    print(f"{of}{done} of {len(found)} done; the rest takes about {rest:.0f} GPU minutes")
    for path in strangers(plan, place.results):
        print(f"{path} is of no run of this plan")
