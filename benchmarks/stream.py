"""Images streamed from the disk beside the same kept on the device: images a second, host memory.

    python benchmarks/stream.py [--images N] [--size SIDE] [--json FILE] [RECIPE] [KEY=VALUE ...]

A store of random images is written, or found again with --store. Its images are streamed and then
made resident, each time for the views alone and for whole training steps of the recipe. ``ratio``
is the streamed rate by the resident one. ``growth_mib`` is what the resident set of this process
grows by at most while views are made of a stream, sampled fifty times a second: it must not depend
on the number of images. The files have just been written, so that the system reads most
of them from its cache: how fast the disk itself is, is not measured; ``mb_per_s`` is what it would
have to give. At last a stream is begun in the middle of an epoch and compared image by image.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

import numpy as np
import torch

from dsf.benchmarks.report import Report, provenance, save, show
from dsf.data import Batch, Batches, Chunk, Source, Split, Store, writer
from dsf.data.progress import Progress
from dsf.experiments import Settings, build, load_recipe
from dsf.experiments.cost import measure

SEED = 0
CPU = ["views.size=32", "batch_size=16", "views.count=4", "batch_norm.splits=4"]


class Made(Source):
    """Random images of random proportions, the same in every run."""

    description, classes, fingerprint = "random bytes", (), "1"

    def __init__(self, images: int, size: int) -> None:
        self.image_size, self.splits = size, {"train": images}

    def read(self, split: str, start: int, stop: int, advance: Callable[[int], None]) -> Chunk:
        generator = np.random.default_rng([SEED, start])
        shape = (stop - start, self.image_size, self.image_size, 3)
        pixels = np.frombuffer(generator.bytes(int(np.prod(shape))), dtype=np.uint8)
        sizes = generator.integers(self.image_size, 2 * self.image_size, (stop - start, 2))
        return Chunk(pixels.reshape(shape), sizes=sizes)


def open_store(folder: Path, images: int, size: int) -> Split:
    if not (folder / "manifest.json").is_file():
        writer.build(folder, "random", Made(images, size), Progress())
    store = Store(folder)
    if (store.counts, store.image_size) != ({"train": images}, size):
        raise ValueError(f"--store: {store} has other images than {images} of {size} pixels")
    return store.split("train")


def resident_set() -> float:
    """MiB of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watch:
    """The most that the resident set grows to."""

    def __init__(self) -> None:
        self.before = self.peak = resident_set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, resident_set())

    @classmethod
    @contextmanager
    def running(cls) -> Iterator["Watch"]:
        watch = cls()
        watch._thread.start()
        try:
            yield watch
        finally:
            watch._stop.set()
            watch._thread.join()

    @property
    def growth(self) -> float:
        return self.peak - self.before


def views_only(settings: Settings, split: Split, steps: int) -> tuple[float, float]:
    """Images a second, and the growth of host memory."""
    device = torch.device(settings.device)
    torch._dynamo.reset()
    batches = build.build_batches(settings, split, device)
    views = build.build_views(settings, device)
    ids = torch.arange(settings.views.total, device=device)
    epoch = torch.zeros((), dtype=torch.int64, device=device)
    endless = chain.from_iterable(batches.epoch(number) for number in count())

    def step() -> None:
        batch: Batch = next(endless)
        sizes = batches.sizes(batch.samples)
        views(batch.images, batch.samples, epoch, ids, sizes)

    for _ in range(10 if device.type == "cuda" else 2):
        step()
    synchronise(device)
    with Watch.running() as watch:
        started = time.perf_counter()
        for _ in range(steps):
            step()
        synchronise(device)
        seconds = time.perf_counter() - started
    return steps * settings.batch_size / seconds, watch.growth


def whole_step(settings: Settings, split: Split, steps: int) -> tuple[float, None]:
    return measure("whole step", settings, split, steps).images_per_second, None


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def compare(what: str, settings: dict[bool, Settings], split: Split, steps: int) -> Report:
    function = {"views": views_only, "step": whole_step}[what]
    # Streamed first: what the system maps for a resident copy must not look like a stream's.
    streamed, growth = function(settings[False], split, steps)
    resident, _ = function(settings[True], split, steps)
    return {
        "what": what,
        "streamed_per_s": streamed,
        "resident_per_s": resident,
        "ratio": streamed / resident,
        "mb_per_s": streamed * split.nbytes / len(split) / 1e6,
        "growth_mib": growth,
    }


def check_resume(settings: Settings, split: Split) -> int:
    """Begin in the middle of an epoch; returns the number of the batch."""
    batches: Batches = build.build_batches(settings, split, torch.device(settings.device))
    start = len(batches) // 2
    order = list(batches.sampler.batches(0))[start:]
    stream = batches.epoch(0, start)
    for samples, _ in zip(order, range(3), strict=False):
        batch = next(stream)
        same = torch.equal(batch.samples.cpu(), samples.cpu())
        if not same or not torch.equal(batch.images.cpu(), split.gather(samples)):
            raise RuntimeError(f"batch {start} of a resumed stream has other images")
    stream.close()
    return start


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", nargs="?", default="imagenet100-dsf" if on_gpu else "demo")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*")
    parser.add_argument("--images", type=int, default=100_000 if on_gpu else 2_000)
    parser.add_argument("--size", type=int, default=256 if on_gpu else 64)
    parser.add_argument("--steps", type=int, default=200 if on_gpu else 10)
    parser.add_argument("--only", choices=["views", "step"], help="measure one of the two")
    parser.add_argument("--store", type=Path, help="keep the store in this folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    arguments = parser.parse_args()
    report: Report = {"provenance": provenance("python benchmarks/stream.py", seed=SEED)}
    overrides = [*([] if on_gpu else CPU), *arguments.overrides]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        place = arguments.store or Path(folder) / "store"
        there = place.exists()
        split = open_store(place, arguments.images, arguments.size)
        report["store"] = {
            "images": len(split),
            "size": split.image_size,
            "gibibytes": split.nbytes / 2**30,
        }
        if not there:
            report["store"]["made_s"] = time.perf_counter() - started
        settings = {
            kept: build.resolve(
                load_recipe(arguments.recipe, [*overrides, f"data.resident={str(kept).lower()}"])
            )
            for kept in (True, False)
        }
        report |= {"recipe": arguments.recipe, "overrides": overrides, "steps": arguments.steps}
        kinds = [arguments.only] if arguments.only else ["views", "step"]
        report["rows"] = []
        for kind in kinds:
            report["rows"].append(compare(kind, settings, split, arguments.steps))
            save(report, arguments.json)
        report["resumed_at_batch"] = check_resume(settings[False], split)
    size = report["store"]["gibibytes"]
    show(f"{len(split):,} images of {split.image_size} pixels, {size:.2f} GiB", report["rows"])
    print(f"\nbegun again at batch {report['resumed_at_batch']} of an epoch: the same images")
    save(report, arguments.json)


if __name__ == "__main__":
    main()
