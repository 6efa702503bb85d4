"""``dsf eval``: how good a run's encoder is."""

import argparse
from pathlib import Path

from dsf.commands.parser import Parser


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "eval",
        help="evaluate a run",
        description="Evaluate the frozen encoder of a run; results.json in its folder keeps it.\n"
        "knn: a weighted vote of the nearest training images, by the features of\n"
        "     backbone and projection;\n"
        "linear: a linear classifier, its settings chosen on held-out training images.",
        example="dsf eval runs/demo knn linear",
    )
    parser.add_argument("folder", metavar="RUN", type=Path, help="the folder of a run")
    parser.add_argument(
        "names",
        metavar="knn|linear",
        nargs="*",
        help="which evaluations (knn)",
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (auto)")
    parser.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> None:
    from dsf.experiments import evaluate

    results = evaluate(options.folder, options.names or ["knn"], options.device)
    for name, result in results.items():
        numbers = [(key, value) for key, value in result.items() if isinstance(value, float)]
        print(name, "  ".join(f"{key} {100 * value:.2f} %" for key, value in numbers))
