"""What a whole training step costs: batch, views, encoders, loss, optimiser, averages."""

import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from dsf.data import Split
from dsf.experiments import build
from dsf.experiments.kernels import KernelCost, kernel_costs
from dsf.experiments.recipe import load_recipe
from dsf.experiments.settings import Settings
from dsf.training import Checkpoints, Loop, Plan
from dsf.training import checkpoints as saved
from dsf.training.numerics import DTYPES, numerics

READY = "on views made before"
"""The variant that trains on the same random views again and again: the model's own cost."""

VARIANTS = {
    "as the recipe has it": [],
    READY: [],
    "not as a CUDA graph": ["graph=false"],
    "nor compiled": ["graph=false", "compile=false"],
    "eager fp32": ["graph=false", "compile=false", "precision=fp32", "autotune=false"],
}
"""What the recipe is compared with, by the settings that are changed."""

_LONGEST = 20.0  # seconds of steps that are measured, but for the first few


class StepCost(NamedTuple):
    """The cost of one step.

    Attributes:
        what: of ``VARIANTS``.
        milliseconds: on average.
        images_per_second: how fast that is.
        views_per_second: with all views of an image.
        gibibytes: the most that torch took of the GPU's memory; None on a CPU.
        warm_up_seconds: what came before: compilation, cuDNN's choices, the first steps.
        checkpoint_bytes: what a checkpoint holds by then.
        kernels: where the GPU's time goes, of the first variant if asked.
    """

    what: str
    milliseconds: float
    images_per_second: float
    views_per_second: float
    gibibytes: float | None
    warm_up_seconds: float
    checkpoint_bytes: int
    kernels: list[KernelCost] | None = None


class Products(NamedTuple):
    """The matrix products and convolutions of a step, and how fast the device could be at them.

    Attributes:
        flop: of one step, forward and backward, of both encoders; views are not counted.
        ceiling: flop a second of one large matrix product in the recipe's precision.
    """

    flop: int
    ceiling: float

    def share(self, milliseconds: float) -> float:
        """What part of the ceiling a step of so many milliseconds reaches."""
        return self.flop / (1e-3 * milliseconds) / self.ceiling


def products(recipe: str, overrides: Sequence[str] = ()) -> Products:
    """Count the products of a step of a recipe, and measure a large one in its precision."""
    settings = load_recipe(recipe, [*overrides, "graph=false", "compile=false"])
    settings = build.resolve(settings)
    split = random_images(2 * settings.batch_size, settings.data.size or settings.views.size)
    resolved = build.resolve(settings, split)
    device = torch.device(resolved.device)
    with (
        tempfile.TemporaryDirectory() as folder,
        numerics(resolved.precision, resolved.deterministic, autotune=False),  # type: ignore[arg-type]
    ):
        loop = _make_loop(resolved, split, device, Path(folder), made_before=True)
        run = loop.try_steps()
        with FlopCounterMode(display=False, custom_mapping=_ATTENTION) as counter:
            _take(run, 1, device)
        run.close()
        del loop, run
        ceiling = _large_product(DTYPES[resolved.precision], device)
    return Products(counter.get_total_flops(), ceiling)


def _attend(qkv: torch.Size, *_: Any, **__: Any) -> int:
    images, tokens, width = qkv
    return 4 * images * tokens**2 * (width // 3)


def _attend_backward(qkv: torch.Size, *_: Any, **__: Any) -> int:
    return _attend(qkv) * 5 // 2  # as torch counts its own, which multiplies the logits again


_ATTENTION = {torch.ops.dsf.attend: _attend, torch.ops.dsf.attend_backward: _attend_backward}
"""How the attention of :mod:`dsf.models.transformer` is counted."""


def _large_product(dtype: torch.dtype, device: torch.device) -> float:
    on_gpu = device.type == "cuda"
    side, repeats = (8192, 50) if on_gpu else (1024, 5)
    a, b = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    best = float("inf")
    for _ in range(4):  # the first warms up
        if on_gpu:
            torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(repeats):
            a @ b
        if on_gpu:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return float(2 * side**3 * repeats / best)


def step_costs(
    recipe: str, overrides: Sequence[str] = (), steps: int = 200, profile: bool = False
) -> Iterator[tuple[str, StepCost | None]]:
    """Measure the steps of a recipe as it is, and with less and less of what makes it fast.

    Each of ``VARIANTS`` is given as soon as it is measured; None where the GPU's memory is too
    small for it, though not for the recipe as it is.

    Images are random bytes, of the stored size where the recipe says one: what they show changes
    nothing about the time. They are 50,000 as in CIFAR-10, or 2,000 on a CPU, or what fits into a
    GiB of larger ones.

    Args:
        recipe: its name.
        overrides: settings to change, ``key=value`` each.
        steps: how many to measure at most; fewer where they would take long.
        profile: also list the kernels of the recipe as it is; on a GPU.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1; got {steps}")
    if profile and not torch.cuda.is_available():
        raise ValueError("profile: there is no CUDA device here whose kernels could be listed")
    split: Split | None = None
    for number, (what, changes) in enumerate(VARIANTS.items()):
        settings = load_recipe(recipe, [*overrides, *changes])
        split = split or _many_images(build.resolve(settings))
        resolved = build.resolve(settings, split)
        cost: StepCost | None = None
        try:
            cost = measure(what, resolved, split, steps, profile and number == 0)
        except torch.OutOfMemoryError:
            if number == 0:
                raise
        yield what, cost


def _many_images(settings: Settings) -> Split:
    side = settings.data.size or settings.views.size
    most = 50_000 if settings.device == "cuda" else 2_000
    count = max(settings.batch_size, min(most, 2**30 // (3 * side**2)))
    return random_images(count, side, squashed=settings.data.size is not None)


def random_images(count: int, side: int, squashed: bool = False) -> Split:
    """Images of random bytes; squashed ones are said to have had other proportions."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    sizes = generator.integers(side, 2 * side, (count, 2)) if squashed else None
    return Split("train", [pixels], sizes=sizes)


def measure(
    what: str, settings: Settings, split: Split, steps: int, profile: bool = False
) -> StepCost:
    """Measure steps of a training by resolved settings on the images of a split.

    Args:
        what: of ``VARIANTS``, or any other word for the recipe as it is.
        settings: resolved ones.
        split: the images.
        steps: how many to measure at most; fewer where they would take long.
        profile: list the kernels too.
    """
    device = torch.device(settings.device)
    on_gpu = device.type == "cuda"
    torch._dynamo.reset()
    with (
        tempfile.TemporaryDirectory() as folder,
        numerics(settings.precision, settings.deterministic, settings.autotune is True),  # type: ignore[arg-type]
    ):
        started = time.perf_counter()
        loop = _make_loop(settings, split, device, Path(folder), made_before=what == READY)
        run = loop.try_steps()
        _take(run, 10 if on_gpu else 1, device)
        ready = time.perf_counter()
        if on_gpu:
            torch.cuda.empty_cache()  # what cuDNN's search took
            torch.cuda.reset_peak_memory_stats()
        seconds = _seconds(run, steps, device)
        peak = torch.cuda.max_memory_reserved() / 2**30 if on_gpu else None
        kernels = kernel_costs(lambda: _take(run, 5, device), 5) if profile else None
        run.close()
        checkpoint = saved.module_tensors(loop.method)
        checkpoint |= saved.optimiser_tensors(loop.optimiser, loop.method)
    speed = settings.batch_size / seconds
    return StepCost(
        what,
        1e3 * seconds,
        speed,
        settings.views.total * speed,
        peak,
        ready - started,
        sum(tensor.nbytes for tensor in checkpoint.values()),
        kernels=kernels,
    )


class _MadeBefore(nn.Module):
    """Random views, the same for every batch."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        super().__init__()
        count, chosen = settings.batch_size // settings.accumulate, settings.views

        def make(views: int, size: int) -> Tensor:
            shape = (count, views, size, size, 3)
            made = torch.randn(shape, dtype=DTYPES[settings.precision], device=device)
            made = made.permute(0, 1, 4, 2, 3)
            return made.contiguous() if device.type == "cpu" else made

        self.views: Tensor | tuple[Tensor, Tensor] = make(chosen.count, chosen.size)
        if chosen.local.count:
            self.views = self.views, make(chosen.local.count, chosen.local.size)

    def forward(self, *_: Tensor | None) -> Tensor | tuple[Tensor, Tensor]:
        return self.views


def _make_loop(
    settings: Settings, split: Split, device: torch.device, folder: Path, made_before: bool
) -> Loop:
    batches = build.build_batches(settings, split, device)
    method = build.place(build.build_method(settings), settings, device)
    plan = Plan(
        1,
        settings.views.total,
        settings.accumulate,
        settings.precision,  # type: ignore[arg-type]
        settings.graph is True,
    )
    schedule = build.build_schedule(settings, len(batches))
    optimiser = build.build_optimiser(settings, method)
    views = _MadeBefore(settings, device) if made_before else build.build_views(settings, device)
    return Loop(method, batches, views, optimiser, schedule, plan, Checkpoints(folder), None)


def _seconds(run: Generator[None, None, None], steps: int, device: torch.device) -> float:
    """What a step takes, the mean of as many as asked or as there is time for."""
    started = time.perf_counter()
    taken, elapsed = 0, 0.0
    while taken < steps and 2 * elapsed < _LONGEST:
        count = min(max(5, taken), steps - taken)  # doubled each time: waiting costs something
        _take(run, count, device)
        taken += count
        elapsed = time.perf_counter() - started
    return elapsed / taken


def _take(run: Generator[None, None, None], count: int, device: torch.device) -> None:
    for _ in range(count):
        next(run)
    if device.type == "cuda":
        torch.cuda.synchronize()
