"""Images a second of ViewLoader in a loop of one's own, beside a DataLoader with torchvision.

    python benchmarks/loader.py [--json FILE]

Two settings: the ``cifar`` recipe at 32 pixels, of images in memory; and the two of ``mocov3``,
half of the views each, at 224 pixels, of JPEG files of 256 pixels. The loop is one as people write
it, the same for all: ``views`` only takes the batches, a list of one tensor a view, to the device;
``step`` trains an encoder with them too, view by view, in eager mode, on a GPU in bf16. What a
loader does while the device computes is thus hidden where it can be.

The rival is torchvision's v1 transforms on PIL images in a ``DataLoader`` with one worker a core,
persistent, pinned on a GPU; it decodes a JPEG file once for all its views. ViewLoader decodes all
files beforehand, which ``prepared_s`` tells and no rate includes. Workers are started and graphs
compiled before anything is measured, and each loader is measured on as many batches.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.datasets import ImageFolder

from dsf.benchmarks.augment import torchvision_pipeline
from dsf.benchmarks.report import CORES, Report, parse, provenance, save, show
from dsf.data import Split, ViewLoader, load
from dsf.data.augment import RECIPES
from dsf.losses import DSFLoss
from dsf.models import create_encoder
from dsf.models.heads import create_head

SEED = 0
WARM_UP = 2

Step = Callable[[list[Tensor]], None]


class Setting(NamedTuple):
    recipes: tuple[str, ...]  # one, or one a half of the views
    size: int
    files: int  # JPEG files; 0: all images in memory
    images: int  # a batch
    views: int
    loops: tuple[str, ...]


CIFAR, MOCOV3 = ("cifar",), ("mocov3-1", "mocov3-2")
BOTH = ("views", "step")
SETTINGS = {
    "cuda": [Setting(CIFAR, 32, 0, 256, 8, BOTH), Setting(MOCOV3, 224, 2_000, 64, 8, BOTH)],
    "cpu": [Setting(CIFAR, 32, 0, 32, 4, BOTH), Setting(MOCOV3, 224, 200, 16, 4, ("views",))],
}


class ManyViews:
    """As lightly's MultiViewTransform: a list of views."""

    def __init__(self, setting: Setting) -> None:
        sides = [torchvision_pipeline(RECIPES[name], setting.size) for name in setting.recipes]
        self.transforms = [side for side in sides for _ in range(setting.views // len(sides))]

    def __call__(self, picture: Image.Image) -> list[Tensor]:
        return [transform(picture) for transform in self.transforms]


class InMemory(Dataset[tuple[list[Tensor], int]]):
    """As torchvision's CIFAR10: an image becomes a PIL image, then views."""

    def __init__(self, split: Split, transform: ManyViews) -> None:
        self.pixels = split.images().permute(0, 2, 3, 1).numpy()
        self.labels = split.labels().tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int]:
        return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]


class Draws(Sampler[int]):
    """Random indices, as many as asked for: workers make nothing that is not measured."""

    def __init__(self, images: int) -> None:
        self.images, self.count = images, 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randint(self.images, (self.count,)).tolist())


def write_files(folder: Path, count: int) -> None:
    """JPEG files of 256 pixels, two classes of them."""
    pixels = load("embedded").images()[:count].permute(0, 2, 3, 1).numpy()
    for index, image in enumerate(pixels):
        target = folder / f"class{index % 2}" / f"{index}.jpg"
        target.parent.mkdir(exist_ok=True, parents=True)
        large = Image.fromarray(image).resize((256, 256), Image.Resampling.BICUBIC)
        large.save(target, quality=90)


def training_step(setting: Setting, device: str) -> Step:
    """A step of SimCLR with DSF."""
    torch.manual_seed(SEED)
    name = "resnet18" if device == "cuda" else "resnet-small"
    options = {"stem": "cifar"} if device == "cuda" and setting.size < 100 else {}
    encoder = create_encoder(name, **options)
    head = create_head("mlp-bn", encoder.num_features, 128)
    model = nn.Sequential(encoder, head).to(device, memory_format=torch.channels_last)
    loss = DSFLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)

    def step(views: list[Tensor]) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            features = [model(view) for view in views]
            half = len(views) // 2
            value = loss(features[:half], features[half:])
        value.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def rate(
    batches: Callable[[int], Iterable[Any]], steps: int, step: Step, images: int, device: str
) -> float:
    """Images a second."""
    seconds = 0.0
    for count in (WARM_UP, steps):
        start = time.perf_counter()
        for views, *_ in batches(count):
            step([view.to(device, non_blocking=True) for view in views])
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return steps * images / seconds


def torchvision_batches(
    setting: Setting, folder: Path, device: str
) -> Callable[[int], Iterable[Any]]:
    transform = ManyViews(setting)
    dataset: Dataset[Any]
    if setting.files:
        dataset = ImageFolder(str(folder), transform)
    else:
        dataset = InMemory(load("embedded"), transform)
    draws = Draws(setting.files or len(load("embedded")))
    loader = DataLoader(
        dataset,
        setting.images,
        sampler=draws,
        num_workers=CORES,
        persistent_workers=True,
        pin_memory=device == "cuda",
    )

    def batches(count: int) -> Iterable[Any]:
        draws.count = count * setting.images
        return loader

    return batches


def our_batches(
    setting: Setting, folder: Path, device: str, resident: bool
) -> Callable[[int], Iterable[Any]]:
    torch._dynamo.reset()
    recipe: Any = setting.recipes if len(setting.recipes) == 2 else setting.recipes[0]
    loader = ViewLoader(
        folder if setting.files else "embedded",
        setting.images,
        setting.views,
        recipe,
        view_size=setting.size,
        form="lightly",
        seed=SEED,
        device=device,
        resident=resident,
    )
    return lambda count: islice(chain.from_iterable(repeat(loader)), count)


def measure(setting: Setting, device: str, steps: int) -> Report:
    with tempfile.TemporaryDirectory() as place:
        os.environ["DSF_DATA"] = str(Path(place, "stores"))
        folder = Path(place, "files")
        write_files(folder, setting.files)
        makers: dict[str, Callable[[], Callable[[int], Iterable[Any]]]] = {
            f"DataLoader, {CORES} workers": lambda: torchvision_batches(setting, folder, device),
            "ViewLoader, resident": lambda: our_batches(setting, folder, device, True),
            "ViewLoader, streamed": lambda: our_batches(setting, folder, device, False),
        }
        rows: list[Report] = []
        opened = []
        for what, maker in makers.items():
            start = time.perf_counter()
            batches = maker()
            opened.append(time.perf_counter() - start)
            for loop in setting.loops:
                step = training_step(setting, device) if loop == "step" else lambda views: None
                speed = rate(batches, steps, step, setting.images, device)
                rows.append({"loop": loop, "what": what, "images_per_s": speed})
            del batches  # its workers too
        rows.sort(key=lambda row: setting.loops.index(row["loop"]))
        for row in rows:
            rival = next(other for other in rows if other["loop"] == row["loop"])
            row["times_torchvision"] = row["images_per_s"] / rival["images_per_s"]
    report: Report = {"setting": setting._asdict(), "rows": rows}
    return report | ({"prepared_s": opened[1]} if setting.files else {})


def main() -> None:
    arguments = parse(__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    steps = arguments.repeats * (10 if device == "cuda" else 1)
    report: Report = {
        "provenance": provenance(
            "python benchmarks/loader.py",
            seed=SEED,
            device=device,
            cores=CORES,
            threads=torch.get_num_threads(),
            batches=steps,
        )
    }
    for setting in SETTINGS[device]:
        measured = measure(setting, device, steps)
        report[f"{setting.size} pixels"] = measured
        show(
            f"{' and '.join(setting.recipes)} at {setting.size} pixels, {setting.images} images x "
            f"{setting.views} views a batch, on {report['provenance']['gpu'] or device}",
            measured["rows"],
        )
        if "prepared_s" in measured:
            print(f"\n{setting.files:,} files prepared in {measured['prepared_s']:.1f} s")
    save(report, arguments.json)


if __name__ == "__main__":
    main()
