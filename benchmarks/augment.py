"""How many views a second: dsf on one device, torchvision on all cores, kornia on that device.

    python benchmarks/augment.py [--json FILE]

Two settings: the full ``cifar`` recipe at 32 pixels, and the two of ``mocov3``, half of the views
each, at 224 pixels from images stored at 256. The images are 64 of CIFAR-10's, enlarged for the
second. dsf starts from bytes on the device and ends in normalised channels_last tensors there;
``graph_ms`` is the compiled call replayed as a CUDA graph, as a captured training step does it.

The rivals get the better of every doubt. torchvision works on decoded PIL images in one process a
core, and its views stay where they were made: no loader collects them, none crosses to the GPU.
kornia starts from floats on the device; its RandAugment draws one pair of operations for all
views of a batch where ours and torchvision's draw one a view, and its other operations are not
torchvision's to the level. It is left out where it is not installed.
"""

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageFilter
from report import (
    Report,
    graph_milliseconds,
    milliseconds,
    parse,
    peak_mib,
    provenance,
    save,
    show,
)
from torch import Tensor
from torchvision import transforms
from torchvision.transforms.functional import pil_to_tensor

from dsf.allocator import keep_freed_memory
from dsf.data.augment import RECIPES, Recipe, TwoSides, Views

SEED = 0
SHEET = Path(__file__).parents[1] / "tests" / "data" / "augment" / "cifar10_test_64.webp"
CORES = len(os.sched_getaffinity(0))


class Setting(NamedTuple):
    recipes: tuple[str, ...]  # one, or one a side
    size: int
    stored: int
    images: int
    views: int


CIFAR, MOCOV3 = ("cifar",), ("mocov3-1", "mocov3-2")
SETTINGS = {
    "cuda": [Setting(CIFAR, 32, 32, 256, 8), Setting(MOCOV3, 224, 256, 64, 8)],
    "cpu": [Setting(CIFAR, 32, 32, 64, 8), Setting(MOCOV3, 224, 256, 32, 4)],
}


def pictures(stored: int) -> list[Image.Image]:
    sheet = Image.open(SHEET).convert("RGB")
    boxes = [(x, y, x + 32, y + 32) for y in range(0, 256, 32) for x in range(0, 256, 32)]
    return [sheet.crop(box).resize((stored, stored), Image.Resampling.BICUBIC) for box in boxes]


def batch(setting: Setting, device: str) -> Tensor:
    images = torch.stack([pil_to_tensor(picture) for picture in pictures(setting.stored)])
    repeated = images[torch.arange(setting.images) % len(images)]
    return repeated.to(device, memory_format=torch.channels_last)


def ours(setting: Setting, exact: bool, compiled: bool, device: str, repeats: int) -> Report:
    torch._dynamo.reset()
    sides = [Views(recipe, setting.size, SEED, exact) for recipe in setting.recipes]
    views = (TwoSides(*sides) if len(sides) == 2 else sides[0]).to(device)
    function = torch.compile(views, fullgraph=True) if compiled else views
    images = batch(setting, device)
    samples = torch.arange(setting.images, device=device)
    ids = torch.arange(setting.views, device=device)
    epoch = torch.zeros((), dtype=torch.int64, device=device)

    def call() -> Tensor:
        return function(images, samples, epoch, ids)

    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    form = "" if not sides[0].recipe.randaugment else " exact" if exact else " fused"
    row: Report = {
        "what": f"dsf{form}, {'compiled' if compiled else 'eager'}",
        "ms": milliseconds(call, device, repeats),
        "first_call_s": first,
    }
    if device == "cuda":
        row["MiB"] = peak_mib(call)
        if compiled:
            row["graph_ms"] = graph_milliseconds(call, repeats)
    best = row.get("graph_ms", row["ms"])
    return row | {"views_per_s": 1e3 * setting.images * setting.views / best}


class Blur:
    def __init__(self, radius: tuple[float, float]) -> None:
        self.radius = radius

    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.filter(ImageFilter.GaussianBlur(random.uniform(*self.radius)))


def torchvision_pipeline(recipe: Recipe, size: int) -> Callable[[Image.Image], Tensor]:
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
    steps.append(transforms.RandomApply([Blur(recipe.blur_radius)], recipe.blur))
    if recipe.solarize:
        steps.append(transforms.RandomSolarize(recipe.solarize_threshold, recipe.solarize))
    steps.append(transforms.RandomHorizontalFlip(recipe.flip))
    steps += [transforms.ToTensor(), transforms.Normalize(recipe.mean, recipe.std)]
    return transforms.Compose(steps)


_worker: dict[str, Any] = {}


def start_worker(setting: Setting) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    _worker["pictures"] = pictures(setting.stored)
    recipes = [RECIPES[name] for name in setting.recipes]
    _worker["transforms"] = [torchvision_pipeline(recipe, setting.size) for recipe in recipes]


def work(seed: int) -> int:
    """Make a view of every image by every recipe."""
    random.seed(seed)
    torch.manual_seed(seed)
    for picture in _worker["pictures"]:
        for transform in _worker["transforms"]:
            transform(picture)
    return len(_worker["pictures"]) * len(_worker["transforms"])


def torchvision_on_all_cores(setting: Setting, repeats: int) -> Report:
    # A second or so for every core: a view takes about 0.6 ms at 32 pixels, 3 ms at 224.
    tasks = range(CORES * repeats * (2 if setting.size < 100 else 1))
    with multiprocessing.get_context("spawn").Pool(CORES, start_worker, [setting]) as pool:
        pool.map(work, range(CORES), chunksize=1)
        start = time.perf_counter()
        made = sum(pool.map(work, tasks, chunksize=1))
        seconds = time.perf_counter() - start
    return {"what": f"torchvision, {CORES} processes", "views_per_s": made / seconds}


def kornia_pipeline(recipe: Recipe, size: int) -> Callable[[Tensor], Tensor]:
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

    def transform(images: Tensor) -> Tensor:
        images = crop(images)
        if recipe.randaugment:
            share = round(recipe.randaugment * len(images))
            images = torch.cat([randaugment(images[:share]), images[share:]])
        return rest(images)

    return transform


def kornia_on_the_device(setting: Setting, device: str, repeats: int) -> Report | None:
    try:
        release = version("kornia")
    except PackageNotFoundError:
        print("kornia is not installed and left out (extra: bench)")
        return None
    sides = [kornia_pipeline(RECIPES[name], setting.size) for name in setting.recipes]
    images = batch(setting, device).repeat_interleave(setting.views, 0).float() / 255
    parts = images.chunk(len(sides))
    torch.manual_seed(SEED)

    def call() -> list[Tensor]:
        return [transform(part) for transform, part in zip(sides, parts, strict=True)]

    taken = milliseconds(call, device, repeats)
    return {
        "what": f"kornia {release}, eager",
        "ms": taken,
        "views_per_s": 1e3 * len(images) / taken,
    }


def measure(setting: Setting, device: str, repeats: int) -> list[Report]:
    rival = torchvision_on_all_cores(setting, repeats)
    rows = [rival, kornia_on_the_device(setting, device, repeats)]
    forms = (True, False) if RECIPES[setting.recipes[0]].randaugment else (False,)
    for compiled in (False, True):
        for exact in forms:
            rows.append(ours(setting, exact, compiled, device, repeats))
    kept = [row for row in rows if row is not None]
    for row in kept:
        row["times_torchvision"] = row["views_per_s"] / rival["views_per_s"]
    return kept


def main() -> None:
    arguments = parse(__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = torch.get_num_threads()
    report: Report = {
        "provenance": provenance(
            "benchmarks/augment.py",
            arguments,
            seed=SEED,
            device=device,
            cores=CORES,
            threads=threads,
            torchvision=version("torchvision"),
            pillow=version("pillow"),
        )
    }
    for setting in SETTINGS[device]:
        rows = measure(setting, device, arguments.repeats)
        report[f"{setting.size} pixels"] = {"setting": setting._asdict(), "rows": rows}
        title = (
            f"{' and '.join(setting.recipes)} at {setting.size} pixels, {setting.images} images x "
            f"{setting.views} views, on {report['provenance']['gpu'] or device}"
        )
        show(title, rows)
        save(report, arguments)


if __name__ == "__main__":
    main()
