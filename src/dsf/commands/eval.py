"""``dsf eval``: how good a run's encoder is, or any other."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsf.commands.parser import Parser, positive, seed

_DESCRIPTION = """\
Evaluate an encoder: that of a run, or one by its name. results.json in the run's folder keeps
every result with its protocol; what is there already is not computed again. No setting is ever
chosen on test images.

knn         a weighted vote of the nearest training images (the default)
linear      a linear classifier on frozen features; --linear paper: on augmented views, by SGD
finetune    all weights trained further; learning rate and decay chosen on validation images
corruption  the linear classifier on corrupted test images, 18 types and 5 severities
geometry    alignment, uniformity, rank, separation, and what kappa tells of an image"""


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "eval",
        help="evaluate a run, or any encoder",
        description=_DESCRIPTION,
        example="dsf eval runs/demo knn linear\n"
        "dsf eval runs/cifar10-dsf linear --linear paper --labels 0.01\n"
        "dsf eval runs/cifar10-dsf finetune --data pets --budget 0.05\n"
        "dsf eval timm/resnet18 knn --data cifar10 --pretrained",
    )
    parser.add_argument(
        "source", metavar="RUN|ENCODER", help="the folder of a run, or say timm/resnet18"
    )
    parser.add_argument(
        "names",
        metavar="EVALUATION",
        nargs="*",
        help="which (knn); of an ENCODER also options KEY=VALUE, such as stem=cifar",
    )
    parser.add_argument("--data", metavar="NAME", help="the data set (a run's own)")
    parser.add_argument(
        "--linear", choices=("fast", "paper"), default="fast", help="which linear one (fast)"
    )
    parser.add_argument(
        "--labels",
        type=_share,
        default=1.0,
        metavar="SHARE",
        help="linear: only this share of the training labels, such as 0.01 or 0.1",
    )
    parser.add_argument("--k", type=positive, help="knn: neighbours (the run's knn.k, or 200)")
    parser.add_argument(
        "--budget",
        type=_share,
        default=1.0,
        metavar="SHARE",
        help="finetune: this share of its 20,000 steps, and 4 x 2 settings instead of 7 x 8",
    )
    parser.add_argument(
        "--published", metavar="FOLDER", help="corruption: CIFAR-10-C or ImageNet-C as published"
    )
    parser.add_argument("--size", type=positive, help="side of the images that the encoder sees")
    parser.add_argument("--seed", type=seed, help="of all that is random (the run's, or 0)")
    parser.add_argument(
        "--random", action="store_true", help="the encoder with random weights instead"
    )
    parser.add_argument(
        "--pretrained", action="store_true", help="an ENCODER with its library's weights"
    )
    parser.add_argument("--compile", action="store_true", help="compile the frozen encoder")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (auto)")
    parser.add_argument("--again", action="store_true", help="compute also what is there already")
    parser.add_argument(
        "-o",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="where to keep results.json (the run's folder, or runs/ENCODER)",
    )
    parser.set_defaults(run=_evaluate, overrides=[])


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be a share in (0, 1]; got {text!r}")
    return value


def _evaluate(options: argparse.Namespace) -> None:
    import yaml

    from dsf.experiments import Choices, evaluate

    words = [*options.names, *options.overrides]
    names = [word for word in words if "=" not in word] or ["knn"]
    pairs = [word.split("=", 1) for word in words if "=" in word]

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        results = evaluate(
            options.source,
            names,
            options.device,
            data=options.data,
            choices=Choices(
                options.linear, options.labels, options.k, options.budget, options.published
            ),
            size=options.size,
            seed=options.seed,
            random=options.random,
            pretrained=options.pretrained,
            options={key: yaml.safe_load(value) for key, value in pairs},
            compile=options.compile,
            folder=options.folder,
            again=options.again,
            say=say,
        )
    except ModuleNotFoundError as error:  # an optional package, such as that of frost's textures
        raise ValueError(str(error)) from error
    _show(results)


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
