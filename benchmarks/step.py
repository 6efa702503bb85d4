"""What a whole training step costs: batch, views, both encoders, loss, optimiser, averages.

    python benchmarks/step.py [--recipe cifar10-dsf] [--json FILE] [KEY=VALUE ...]

The recipe as it is, then without compilation, then in plain eager fp32, in the same run. Images
are random bytes of CIFAR-10's shape and number: what they show changes nothing about the time.
On a CPU the recipe is `demo` with fewer images.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from report import Report, finish, provenance, show

from dsf.data import Split
from dsf.experiments import build, load_recipe
from dsf.experiments.settings import Settings
from dsf.training import Checkpoints, Loop, Plan
from dsf.training.numerics import numerics

VARIANTS = {
    "as the recipe has it": [],
    "without compilation": ["compile=false"],
    "eager fp32": ["compile=false", "precision=fp32", "autotune=false"],
}
SEED = 0


def make_loop(settings: Settings, split: Split, device: torch.device, folder: Path) -> Loop:
    batches = build.build_batches(settings, split, device)
    method = build.place(build.build_method(settings), settings, device)
    plan = Plan(1, settings.views.count, settings.accumulate, settings.precision)
    schedule = build.build_schedule(settings, len(batches))
    views, optimiser = build.build_views(settings, device), build.build_optimiser(settings, method)
    return Loop(method, batches, views, optimiser, schedule, plan, Checkpoints(folder), None)


def measure(settings: Settings, split: Split, steps: int, warmup: int) -> dict[str, object]:
    device = torch.device(settings.device)
    torch._dynamo.reset()
    with (
        tempfile.TemporaryDirectory() as folder,
        numerics(settings.precision, settings.deterministic, settings.autotune is True),
    ):
        started = time.perf_counter()
        loop = make_loop(settings, split, device, Path(folder))
        loop.method.train()
        epoch = torch.zeros((), dtype=torch.int64, device=device)
        batches = (batch for number in range(10**6) for batch in loop.batches.epoch(number))

        def run(count: int) -> None:
            for _, batch in zip(range(count), batches, strict=False):
                loop._train_step(batch, epoch, diagnose=False)
            if device.type == "cuda":
                torch.cuda.synchronize()

        run(warmup)
        ready = time.perf_counter()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        run(steps)
        seconds = (time.perf_counter() - ready) / steps
        row: dict[str, object] = {
            "ms": 1e3 * seconds,
            "images_per_s": settings.batch_size / seconds,
            "views_per_s": settings.batch_size * settings.views.count / seconds,
            "warm-up_s": ready - started,
        }
        if device.type == "cuda":
            row["GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the table there too")
    parser.add_argument("--recipe", default="cifar10-dsf" if on_gpu else "demo")
    parser.add_argument("--steps", type=int, default=200 if on_gpu else 3)
    parser.add_argument("--repeats", type=int, help="the same as --steps")
    parser.add_argument("--commit", help="recorded in the JSON; asked of git by default")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    steps = arguments.repeats or arguments.steps
    generator = np.random.default_rng(SEED)
    shape = (50_000 if on_gpu else 1_000, 32, 32, 3)
    split = Split("train", [generator.integers(0, 256, shape, dtype=np.uint8)])
    report: Report = {
        "provenance": provenance(
            "benchmarks/step.py", arguments, seed=SEED, device=device, recipe=arguments.recipe
        )
    }
    rows = []
    for what, changes in VARIANTS.items():
        settings = load_recipe(arguments.recipe, [*arguments.overrides, *changes])
        settings = build.resolve(settings, split)
        rows.append({"what": what, **measure(settings, split, steps, 10 if on_gpu else 1)})
    for row in rows:
        row["times"] = rows[-1]["ms"] / row["ms"]
    report["steps"] = rows
    show(f"a step of {arguments.recipe} on {device}", rows)
    finish(report, arguments)


if __name__ == "__main__":
    main()
