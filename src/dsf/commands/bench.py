"""``dsf bench``: what this machine makes of it."""

import argparse
import importlib
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsf.commands.parser import Parser, UsageError, asked, positive

if TYPE_CHECKING:
    from dsf.experiments.cost import StepCost

_PARTS = ("augment", "loss", "knn")  # modules of dsf.benchmarks
_REPEATS = 15


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "bench",
        help="measure speed and memory on this machine",
        usage="dsf bench step [RECIPE] [KEY=VALUE ...] [options]\n"
        "       dsf bench augment|loss|knn [options]",
        description="What dsf costs here. Needs no data set; rivals are in dsf-ssl[bench].\n"
        "  step     a whole training step, with data and views; on views made before,\n"
        "           without a CUDA graph, not compiled, in plain eager fp32; its share\n"
        "           of the speed of a large matrix product\n"
        "  augment  views a second, beside torchvision on all cores, and kornia\n"
        "  loss     the losses, forward and backward; 1 GiB of logits stored and streamed\n"
        "  knn      the kNN evaluation, beside the usual code, FAISS and scikit-learn",
        example="dsf bench step cifar10-dsf views.count=4 --json step.json",
    )
    parser.add_argument("what", metavar="WHAT", choices=["step", *_PARTS], help=argparse.SUPPRESS)
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="which (cifar10-dsf on a GPU, else demo)"
    )
    parser.add_argument(
        "overrides", metavar="KEY=VALUE", nargs="*", default=[], help="settings to change"
    )
    parser.add_argument("--steps", type=positive, help="how many to measure (200 on a GPU, else 5)")
    parser.add_argument("--profile", action="store_true", help="list the GPU's kernels too")
    parser.add_argument(
        "--repeats", type=positive, metavar="N", help=f"of calls, but for step ({_REPEATS})"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> None:
    if options.json and not options.json.parent.is_dir():
        raise UsageError(f"--json: {options.json.parent} is no folder")
    if options.what == "step":
        if options.repeats is not None:
            raise UsageError("--repeats: a step is measured by --steps")
        _step(options)
        return
    given = {"RECIPE": options.recipe, "--steps": options.steps, "--profile": options.profile}
    for name, value in given.items():
        if value:
            raise UsageError(f"{name}: is of `dsf bench step`; {options.what} takes none")
    module = importlib.import_module(f"dsf.benchmarks.{options.what}")
    module.run(shlex.join(["dsf", *sys.argv[1:]]), options.repeats or _REPEATS, options.json)


def _step(options: argparse.Namespace) -> None:
    import torch

    from dsf.experiments import build, load_recipe
    from dsf.experiments.cost import step_costs
    from dsf.files import write_json
    from dsf.training.environment import environment

    on_gpu = torch.cuda.is_available()
    recipe, overrides = options.recipe, options.overrides
    if recipe is not None and "=" in recipe:
        recipe, overrides = None, [recipe, *overrides]
    recipe = recipe or ("cifar10-dsf" if on_gpu else "demo")
    with asked():
        build.resolve(load_recipe(recipe, overrides))
    if options.profile and not on_gpu:
        raise UsageError("--profile: there is no CUDA device here whose kernels could be listed")
    started = time.time()
    steps = options.steps or (200 if on_gpu else 5)
    report: dict[str, Any] = {"recipe": recipe, "overrides": overrides}
    costs: list[StepCost] = []
    for what, cost in step_costs(recipe, overrides, steps, options.profile):
        if cost is None:
            print(f"{what:<21} does not fit into the GPU's memory", flush=True)
            continue
        costs.append(cost)
        _show(cost)
        if len(costs) == 1:
            report["products"] = _share(recipe, overrides, cost)
            report["kernels"] = [kernel._asdict() for kernel in cost.kernels or []]
        if options.json:  # each time, so that nothing is lost where the rest is cut short
            device = torch.device("cpu" if cost.gibibytes is None else "cuda")
            where = environment(device) | {"wall_s": time.time() - started, "seed": 0}
            write_json(options.json, {"provenance": where} | report | {"steps": _rows(costs)})
    first, last = costs[0], costs[-1]
    times = last.milliseconds / first.milliseconds
    print(f"{first.what}: {times:.2f} times as fast as {last.what}")


def _show(cost: "StepCost") -> None:
    memory = "" if cost.gibibytes is None else f"  {cost.gibibytes:.2f} GiB"
    speed = f"{cost.views_per_second:10,.0f} views/s"
    print(f"{cost.what:<21} {cost.milliseconds:9.2f} ms  {speed}{memory}", flush=True)
    for kernel in cost.kernels or []:
        calls = f"{kernel.calls:5.0f} times" if kernel.calls else ""
        print(
            f"{kernel.milliseconds:9.2f} ms {kernel.share:6.1%}  {calls:<11}  "
            f"{kernel.name or kernel.kind}"
        )


def _share(recipe: str, overrides: Sequence[str], cost: "StepCost") -> dict[str, Any] | None:
    """The products of a step, and how near their speed is to what the device can do."""
    import torch

    from dsf.experiments.cost import products

    try:
        counted = products(recipe, overrides)
    except torch.OutOfMemoryError:
        print("products are not counted: an eager step does not fit into the GPU's memory")
        return None
    share = counted.share(cost.milliseconds)
    print(
        f"{counted.flop / 1e12:.3g} TFLOP of products a step, at {share:.1%} of the "
        f"{counted.ceiling / 1e12:.3g} TFLOP/s of a large matrix product",
        flush=True,
    )
    return counted._asdict() | {"share": share}


def _rows(costs: "Sequence[StepCost]") -> list[dict[str, Any]]:
    """The measurements beside the slowest; kernels, of the first alone, stand on their own."""
    rows = [cost._asdict() for cost in costs]
    for row in rows:
        row.pop("kernels")
        row["times"] = costs[-1].milliseconds / row["milliseconds"]
    return rows
