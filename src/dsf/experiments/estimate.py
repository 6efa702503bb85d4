"""What a run will take, from a few steps on random images: ``dsf train --dry-run``."""

import sys
from dataclasses import dataclass

import numpy as np
import torch

from dsf import distributed
from dsf.data import Split
from dsf.data.registry import find
from dsf.experiments import build
from dsf.experiments.checks import check_count
from dsf.experiments.cost import StepCost, measure, random_images
from dsf.experiments.recipe import make_settings
from dsf.experiments.run import watched
from dsf.experiments.settings import Settings

# What a CPU computes in seconds: a step of more pixels is measured on fewer images.
_PIXELS_ON_CPU = 1 << 20
# Batches that are made up: enough that not every step begins another epoch.
_BATCHES = 8


@dataclass(frozen=True)
class Images:
    """What is known of a run's images.

    Args:
        count: how many, of which ``data.limit`` may take fewer; None where that is not known.
        side: of the stored squares.
        squashed: whether they had other proportions.
        missing: why they cannot be loaded; empty if they can.
    """

    count: int | None
    side: int
    squashed: bool
    missing: str = ""

    @property
    def image_bytes(self) -> int:
        """The memory of one."""
        return 3 * self.side**2

    def like(self) -> Split | None:
        """A split of as many black images, which take no memory; None if it is not known."""
        if self.count is None:
            return None
        shape = (self.count, self.side, self.side, 3)
        return Split("like", [np.broadcast_to(np.uint8(0), shape)])


@dataclass(frozen=True)
class Estimate:
    """What a run will take.

    Args:
        settings: resolved ones.
        images: what is known of them.
        steps_per_epoch: None where the number of images is not known.
        cost: of a step, measured.
        measured_images: on so many images a step; fewer than the batch on a slow machine.
        seconds: of all steps, if their number is known.
        memory_bytes: of the device, with resident images; None where it was not measured.
        device_bytes: what the device has.
    """

    settings: Settings
    images: Images
    steps_per_epoch: int | None
    cost: StepCost
    measured_images: int
    seconds: float | None
    memory_bytes: int | None
    device_bytes: int | None


def estimate(settings: Settings, steps: int | None = None) -> Estimate:
    """Measure a few steps of a run without starting it.

    Args:
        settings: of a recipe.
        steps: how many to measure after a warm-up; by default 30 on a GPU, else 2.
    """
    if distributed.launched()[1] > 1:
        raise ValueError("dry-run: it measures one process; start it without torchrun")
    images = find_images(settings)
    resolved = build.resolve(settings, images.like())
    build.check_local_views(resolved)
    if not images.missing:
        resolved = watched(resolved)
    count = images.count
    if count is not None:
        count = min(count, settings.data.limit or count)
        check_count(settings, count)
    on_gpu = resolved.device == "cuda"
    measured = resolved if on_gpu else _fewer(resolved)
    split = random_images(_BATCHES * measured.batch_size, images.side, images.squashed)
    try:
        cost = measure("dry run", measured, split, steps or (30 if on_gpu else 2))
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"batch_size: a step of {settings.batch_size} images x {settings.views.total} views of "
            f"{settings.views.size} pixels does not fit into the memory of the GPU: take fewer, "
            "or accumulate=2"
        ) from error
    per_epoch = None if count is None else count // settings.batch_size
    scale = settings.batch_size / measured.batch_size
    cost = cost._replace(milliseconds=scale * cost.milliseconds)
    seconds = None
    if per_epoch is not None:
        seconds = settings.epochs * per_epoch * cost.milliseconds / 1e3
    return Estimate(
        resolved,
        images,
        per_epoch,
        cost,
        measured.batch_size,
        seconds,
        _memory(resolved, images, cost, split, scale),
        torch.cuda.mem_get_info()[1] if on_gpu else None,
    )


def find_images(settings: Settings) -> Images:
    """What is known of the images: by the store's manifest, or else by the registry."""
    data = settings.data
    try:
        split = build.load_split(settings, data.split)
    except FileNotFoundError as error:
        known = find(data.name, data.size)
        count = known.splits.get(data.split, data.limit)
        return Images(count, known.image_size, known.resizable, str(error))
    return Images(len(split), split.image_size, split.sizes() is not None)


def _fewer(settings: Settings) -> Settings:
    """The same with so few images a step that a CPU can be measured on it."""
    values = settings.model_dump()
    a_view = settings.views.size**2
    while values["batch_size"] * settings.views.total * a_view > _PIXELS_ON_CPU:
        values["batch_size"] //= 2
        values["optimiser"] |= {"base_lr": None}  # a smaller batch is no other rate
        try:
            settings = make_settings(values)
        except ValueError:  # what the batch is divided into would not come out even
            break
    return settings


def _memory(
    settings: Settings, images: Images, cost: StepCost, split: Split, scale: float
) -> int | None:
    if cost.gibibytes is None:
        return _peak_of_process() if scale == 1 else None
    step = round(cost.gibibytes * 2**30)
    if settings.data.resident is not True or images.count is None:
        return step
    return step - split.nbytes + images.count * images.image_bytes


def _peak_of_process() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def lines(found: Estimate) -> list[str]:
    """An estimate in words."""
    named = [
        ("data", _data(found)),
        ("step", _step(found)),
        ("speed", _speed(found)),
        ("memory", _memory_words(found)),
        ("time", _time(found)),
        ("checkpoint", _checkpoint(found)),
    ]
    result = [f"{name:<11} {text}" for name, text in named]
    if found.images.missing:
        result.insert(1, f"{'':<11} {found.images.missing}")
    return result


def _data(found: Estimate) -> str:
    images, resident = found.images, found.settings.data.resident
    if images.count is None:
        return f"images of {images.side} pixels, how many is not known"
    size = _gib(images.count * images.image_bytes)
    where = "resident on the device" if resident is True else "streamed from the disk"
    limit = found.settings.data.limit
    some = f", of which {limit:,} are used" if limit and limit < images.count else ""
    return f"{images.count:,} images of {images.side} pixels, {size}, {where}{some}"


def _step(found: Estimate) -> str:
    settings = found.settings
    how: list[str] = [settings.device, settings.precision]
    how += ["compiled"] if settings.compile else []
    how += ["a CUDA graph"] if settings.graph else []
    note = ""
    if found.measured_images != settings.batch_size:
        note = f"; measured on {found.measured_images} images"
    return (
        f"{settings.batch_size} images x {settings.views.total} views of {settings.views.size} "
        f"pixels in {found.cost.milliseconds:,.1f} ms ({', '.join(how)}){note}"
    )


def _speed(found: Estimate) -> str:
    speed = 1e3 * found.settings.batch_size / found.cost.milliseconds
    text = f"{speed:,.1f} images/s, {speed * found.settings.views.total:,.0f} views/s"
    if found.settings.data.resident is False:
        text += f"; the disk must give {speed * found.images.image_bytes / 1e6:,.1f} MB/s"
    return text


def _memory_words(found: Estimate) -> str:
    if found.memory_bytes is None:
        return "not measured: too few images a step"
    if found.device_bytes is None:
        return f"{_gib(found.memory_bytes)} of this process"
    text = f"{_gib(found.memory_bytes)} of the GPU's {_gib(found.device_bytes)}"
    if found.memory_bytes > found.device_bytes:
        text += ": too much; data.resident=false streams the images"
    return text


def _time(found: Estimate) -> str:
    if found.steps_per_epoch is None or found.seconds is None:
        return "not known without the number of images: data.limit=N says it"
    settings = found.settings
    return (
        f"{settings.epochs} epochs of {found.steps_per_epoch:,} steps: "
        f"{duration(found.seconds)}, {duration(found.cost.warm_up_seconds)} to start; "
        "evaluations not counted"
    )


def _checkpoint(found: Estimate) -> str:
    size, keep = found.cost.checkpoint_bytes, found.settings.checkpoint.keep
    return f"{_gib(size)}; at most {_gib((keep + 1) * size)} on the disk"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.2f} GiB" if size >= 1e8 else f"{size / 2**20:,.1f} MiB"


def duration(seconds: float) -> str:
    """A time in the unit that fits it.

    Example:
        >>> duration(12), duration(200), duration(40_000)
        ('12 s', '3.3 min', '11.1 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
