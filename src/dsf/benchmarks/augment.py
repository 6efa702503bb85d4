"""How many views a second, beside rivals: ``dsf bench augment``."""

import multiprocessing
import random
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision import transforms
from torchvision.transforms.functional import pil_to_tensor, to_pil_image

from dsf.allocator import keep_freed_memory
from dsf.benchmarks.report import (
    CORES,
    Report,
    can_compile,
    graph_milliseconds,
    milliseconds,
    peak_mib,
    provenance,
    save,
    show,
)
from dsf.data import load
from dsf.data.augment import RECIPES, Recipe, TwoSides, Views

SEED = 0
_PICTURES = 64


class _Setting(NamedTuple):
    recipes: tuple[str, ...]  # one, or one a side
    size: int
    stored: int
    images: int
    views: int


CIFAR, MOCOV3 = ("cifar",), ("mocov3-1", "mocov3-2")
SETTINGS = {
    "cuda": [_Setting(CIFAR, 32, 32, 256, 8), _Setting(MOCOV3, 224, 256, 64, 8)],
    "cpu": [_Setting(CIFAR, 32, 32, 64, 8), _Setting(MOCOV3, 224, 256, 32, 4)],
}


def _pictures(stored: int) -> list[Image.Image]:
    images = load("embedded", "test").images("cpu")[:: 1000 // _PICTURES][:_PICTURES]
    side = (stored, stored)
    return [to_pil_image(image).resize(side, Image.Resampling.BICUBIC) for image in images]


def _batch(setting: _Setting, device: str) -> Tensor:
    images = torch.stack([pil_to_tensor(picture) for picture in _pictures(setting.stored)])
    repeated = images[torch.arange(setting.images) % len(images)]
    return repeated.to(device, memory_format=torch.channels_last)


def _ours(setting: _Setting, exact: bool, compiled: bool, device: str, repeats: int) -> Report:
    torch._dynamo.reset()
    sides = [Views(recipe, setting.size, SEED, exact) for recipe in setting.recipes]
    views = (TwoSides(*sides) if len(sides) == 2 else sides[0]).to(device)
    function = torch.compile(views, fullgraph=True) if compiled else views
    images = _batch(setting, device)
    samples = torch.arange(setting.images, device=device)
    ids = torch.arange(setting.views, device=device)
    epoch = torch.zeros((), dtype=torch.int64, device=device)

    def call() -> object:
        return function(images, samples, epoch, ids)

    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    form = "" if not sides[0].recipe.randaugment else " exact" if exact else " fused"
    best = milliseconds(call, device, repeats)
    how = "compiled" if compiled else "eager"
    row: Report = {"what": f"dsf{form}, {how}", "ms": best, "first_call_s": first}
    if device == "cuda":
        row["MiB"] = peak_mib(call)
        if compiled:
            row["graph_ms"] = best = graph_milliseconds(call, repeats)
    return row | {"views_per_s": 1e3 * setting.images * setting.views / best}


class _Blur:
    def __init__(self, radius: tuple[float, float]) -> None:
        self.radius = radius

    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.filter(ImageFilter.GaussianBlur(random.uniform(*self.radius)))


def torchvision_pipeline(recipe: Recipe, size: int) -> Callable[[Image.Image], Any]:
    """A recipe by torchvision's transforms."""
    jitter = transforms.ColorJitter(
        recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue
    )
    steps: list[Any] = [transforms.RandomResizedCrop(size, recipe.crop_scale, recipe.crop_ratio)]
    if recipe.randaugment:
        randaugment = transforms.RandAugment(
            recipe.operations, recipe.magnitude, recipe.magnitude_bins
        )
        steps.append(transforms.RandomApply([randaugment], recipe.randaugment))
    steps.append(transforms.RandomApply([jitter], recipe.jitter))
    steps.append(transforms.RandomGrayscale(recipe.grayscale))
    steps.append(transforms.RandomApply([_Blur(recipe.blur_radius)], recipe.blur))
    if recipe.solarize:
        steps.append(transforms.RandomSolarize(recipe.solarize_threshold, recipe.solarize))
    steps.append(transforms.RandomHorizontalFlip(recipe.flip))
    steps += [transforms.ToTensor(), transforms.Normalize(recipe.mean, recipe.std)]
    composed: Callable[[Image.Image], Any] = transforms.Compose(steps)
    return composed


_worker: dict[str, Any] = {}


def _start_worker(setting: _Setting) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    _worker["pictures"] = _pictures(setting.stored)
    recipes = [RECIPES[name] for name in setting.recipes]
    _worker["transforms"] = [torchvision_pipeline(recipe, setting.size) for recipe in recipes]


def _work(seed: int) -> int:
    """Make a view of every image by every recipe."""
    random.seed(seed)
    torch.manual_seed(seed)
    for picture in _worker["pictures"]:
        for transform in _worker["transforms"]:
            transform(picture)
    return len(_worker["pictures"]) * len(_worker["transforms"])


def _torchvision_on_all_cores(setting: _Setting, repeats: int) -> Report:
    # A second or so for every core: a view takes about 0.6 ms at 32 pixels, 3 ms at 224.
    tasks = range(CORES * repeats * (2 if setting.size < 100 else 1))
    with multiprocessing.get_context("spawn").Pool(CORES, _start_worker, [setting]) as pool:
        pool.map(_work, range(CORES), chunksize=1)
        start = time.perf_counter()
        made = sum(pool.map(_work, tasks, chunksize=1))
        seconds = time.perf_counter() - start
    return {"what": f"torchvision, {CORES} processes", "views_per_s": made / seconds}


def _kornia_pipeline(recipe: Recipe, size: int) -> Callable[[Tensor], Any]:
    import kornia.augmentation as augment

    crop = augment.RandomResizedCrop(
        (size, size), recipe.crop_scale, recipe.crop_ratio, cropping_mode="resample"
    )
    strengths = (recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue)
    later = [
        augment.ColorJitter(*strengths, p=recipe.jitter),
        augment.RandomGrayscale(p=recipe.grayscale),
        augment.RandomGaussianBlur((13, 13), recipe.blur_radius, p=recipe.blur),
    ]
    if recipe.solarize:
        later.append(augment.RandomSolarize(0.0, 0.0, p=recipe.solarize))
    later.append(augment.RandomHorizontalFlip(p=recipe.flip))
    later.append(augment.Normalize(torch.tensor(recipe.mean), torch.tensor(recipe.std)))
    rest = augment.AugmentationSequential(*later)
    randaugment = augment.auto.RandAugment(n=recipe.operations, m=recipe.magnitude)

    def transform(images: Tensor) -> Any:
        images = crop(images)
        if recipe.randaugment:
            share = round(recipe.randaugment * len(images))
            images = torch.cat([randaugment(images[:share]), images[share:]])
        return rest(images)

    return transform


def _kornia_on_the_device(setting: _Setting, device: str, repeats: int) -> Report | None:
    try:
        release = version("kornia")
    except PackageNotFoundError:
        print("kornia is not installed and left out (extra: bench)")
        return None
    sides = [_kornia_pipeline(RECIPES[name], setting.size) for name in setting.recipes]
    images = _batch(setting, device).repeat_interleave(setting.views, 0).float() / 255
    parts = images.chunk(len(sides))
    torch.manual_seed(SEED)

    def call() -> object:
        return [transform(part) for transform, part in zip(sides, parts, strict=True)]

    taken = milliseconds(call, device, repeats)
    return {
        "what": f"kornia {release}, eager",
        "ms": taken,
        "views_per_s": 1e3 * len(images) / taken,
    }


def _measure(setting: _Setting, device: str, repeats: int) -> list[Report]:
    rival = _torchvision_on_all_cores(setting, repeats)
    rows = [rival, _kornia_on_the_device(setting, device, repeats)]
    forms = (True, False) if RECIPES[setting.recipes[0]].randaugment else (False,)
    for compiled in (False, True) if can_compile(device) else (False,):
        for exact in forms:
            rows.append(_ours(setting, exact, compiled, device, repeats))
    kept = [row for row in rows if row is not None]
    for row in kept:
        row["times_torchvision"] = row["views_per_s"] / rival["views_per_s"]
    return kept


def run(command: str, repeats: int, path: Path | None) -> None:
    """Measure; see :mod:`dsf.benchmarks`."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = torch.get_num_threads()
    report: Report = {
        "provenance": provenance(
            command,
            seed=SEED,
            device=device,
            cores=CORES,
            threads=threads,
            torchvision=version("torchvision"),
            pillow=version("pillow"),
        )
    }
    for setting in SETTINGS[device]:
        rows = _measure(setting, device, repeats)
        report[f"{setting.size} pixels"] = {"setting": setting._asdict(), "rows": rows}
        title = (
            f"{' and '.join(setting.recipes)} at {setting.size} pixels, {setting.images} images x "
            f"{setting.views} views, on {report['provenance']['gpu'] or device}"
        )
        show(title, rows)
        save(report, path)
