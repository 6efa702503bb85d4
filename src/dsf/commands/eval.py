"""``dsf eval``: how good a run's encoder is, or any other."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsf.commands.parser import Parser, UsageError, asked, positive, seed

_DESCRIPTION = """\
Evaluate a run's encoder, one such as timm/resnet18, or a checkpoint of MoCo,
lightly, solo-learn, timm or torchvision. What results.json has is not repeated.
  knn         votes of training images (default); --k K; --leave-one-out of them
  linear      a linear classifier on frozen features; --linear paper: trained on
              augmented views; --labels SHARE: with few labels; --compile
  finetune    all weights, settings chosen on validation images; --budget SHARE
  corruption  linear on corrupted images; --severities 1,2; --published FOLDER
  geometry    alignment, uniformity, rank, and what kappa tells of an image"""

# What may be chosen, and of which evaluations.
_OWNERS = {
    "k": ("knn",),
    "leave_one_out": ("knn",),
    "linear": ("linear", "corruption"),
    "labels": ("linear",),
    "budget": ("finetune",),
    "severities": ("corruption",),
    "published": ("corruption",),
}


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "eval",
        help="evaluate a run, or any encoder",
        usage="dsf eval RUN|ENCODER|FILE [EVALUATION ...] [KEY=VALUE ...] [options]",
        description=_DESCRIPTION,
        example="dsf eval runs/cifar10-dsf finetune --data pets --budget 0.05",
    )
    # What belongs to one evaluation stands beside it in the description.
    beside = argparse.SUPPRESS
    parser.add_argument("source", metavar="RUN|ENCODER|FILE", help=beside)
    parser.add_argument("names", metavar="EVALUATION", nargs="*", default=[], help=beside)
    parser.add_argument("--k", type=positive, help=beside)
    parser.add_argument("--leave-one-out", action="store_true", default=None, help=beside)
    parser.add_argument("--linear", choices=("fast", "paper"), help=beside)
    parser.add_argument("--labels", type=_share, help=beside)
    parser.add_argument("--compile", action="store_true", help=beside)
    parser.add_argument("--budget", type=_share, help=beside)
    parser.add_argument("--severities", type=_severities, help=beside)
    parser.add_argument("--published", metavar="FOLDER", help=beside)
    parser.add_argument("--data", metavar="NAME", help="the data set, or NAME:SIZE (a run's own)")
    parser.add_argument(
        "--size", type=positive, metavar="S", help="side of the images that the encoder sees"
    )
    parser.add_argument("--seed", type=seed, metavar="N", help="of all that is random (the run's)")
    parser.add_argument("--random", action="store_true", help="with random weights instead")
    parser.add_argument(
        "--pretrained", action="store_true", help="an encoder with its library's weights"
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (auto)")
    parser.add_argument("--again", action="store_true", help="compute also what is there")
    parser.add_argument(
        "-o",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="of results.json (the run's, or runs/ENCODER)",
    )
    parser.set_defaults(run=_evaluate, overrides=[], words_anywhere=True)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be a share in (0, 1]; got {text!r}")
    return value


def _severities(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.split(",") if part in ("1", "2", "3", "4", "5"))
    if not found or len(found) != len(text.split(",")) or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"must be some of 1,2,3,4,5, each once; got {text!r}")
    return found


def _evaluate(options: argparse.Namespace) -> None:
    import yaml

    from dsf.experiments import Choices, evaluate
    from dsf.experiments.evaluations import check_names

    words = [*options.names, *options.overrides]
    names = [word for word in words if "=" not in word] or ["knn"]
    pairs = [word.split("=", 1) for word in words if "=" in word]
    results: dict[str, Mapping[str, Any]] = {}

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        with asked() as begin:
            check_names(names)
            _check_pairs(pairs)
            chosen = _chosen(options, names)
            evaluate(
                options.source,
                names,
                options.device,
                data=options.data,
                choices=Choices(**chosen),
                size=options.size,
                seed=options.seed,
                random=options.random,
                pretrained=options.pretrained,
                options={key: yaml.safe_load(value) for key, value in pairs},
                compile=options.compile,
                folder=options.folder,
                again=options.again,
                say=say,
                done=results.__setitem__,
                begin=begin,
            )
    except ModuleNotFoundError as error:  # an optional package, such as that of frost's textures
        raise ValueError(str(error)) from error
    finally:
        if results:  # whatever came after them
            _show(results)


def _check_pairs(pairs: Sequence[Sequence[str]]) -> None:
    """Pairs are for encoders: raise where one looks like an option of an evaluation."""
    for key, value in pairs:
        name = key.rpartition(".")[2]
        if name in ("k", "labels", "budget", "severities", "linear"):
            raise UsageError(f"{key}={value}: did you mean --{name} {value}?")


def _chosen(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """What was said of the evaluations; ``UsageError`` if it is about one not asked for."""
    chosen = {name: getattr(options, name) for name in _OWNERS}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    for name in chosen:
        if not set(_OWNERS[name]) & set(names):
            raise UsageError(
                f"--{name.replace('_', '-')} goes with the evaluation "
                f"{' or '.join(_OWNERS[name])}; got {', '.join(names)}; see `dsf eval --help`"
            )
    return chosen


def _show(results: Mapping[str, Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from dsf.experiments.evaluations import shown_numbers

    table = Table("evaluation", "what", "value", "seconds")
    table.columns[2].justify = table.columns[3].justify = "right"
    for name, result in results.items():
        seconds = f"{result['provenance']['seconds']:.1f}" if "provenance" in result else ""
        for what, value in shown_numbers(result):
            table.add_row(name, what, value, seconds)
            name = seconds = ""
    Console().print(table)
