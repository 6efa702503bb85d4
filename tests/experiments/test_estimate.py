import re

import numpy as np
import pytest
import tiny
import torch

from dsf.data import DATASETS, ArraySource, DataSet, prepare
from dsf.data.source import Source
from dsf.experiments import load_recipe, train
from dsf.experiments.estimate import estimate, find_images, lines
from dsf.training.checkpoints import Checkpoints


@pytest.fixture
def nothing_prepared(tmp_path, monkeypatch):
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "data"))


def test_a_run_that_could_start(tmp_path):
    found = estimate(tiny.settings(), steps=1)
    assert found.steps_per_epoch == 6
    assert found.seconds == pytest.approx(12 * found.cost.milliseconds / 1e3)
    assert found.measured_images == 16
    assert found.memory_bytes > 1e7
    assert found.settings.data.resident is True
    # Checkpoints hold what it says, but for a header and the state of random numbers.
    folder = train(tiny.settings(), tmp_path / "run", show=False)
    (last,) = Checkpoints(folder / "checkpoints").paths()
    written = (last / "tensors.safetensors").stat().st_size
    header = 200 * len(tiny.tensors(folder)) + 10_000
    assert found.cost.checkpoint_bytes <= written <= found.cost.checkpoint_bytes + header
    text = "\n".join(lines(found))
    assert "5,000 images of 32 pixels, 14.6 MiB, resident on the device, of which 96" in text
    assert re.search(r"step +16 images x 4 views of 8 pixels in [\d.,]+ ms \(cpu, fp32\)\n", text)
    assert "time        2 epochs of 6 steps: " in text


def test_streamed_images():
    text = "\n".join(lines(estimate(tiny.settings("data.resident=false"), steps=1)))
    assert "streamed from the disk" in text
    assert re.search(r"views/s; the disk must give [\d.]+ MB/s", text)


@pytest.mark.usefixtures("nothing_prepared")
def test_sets_that_are_not_prepared():
    known = find_images(load_recipe("imagenette-dsf"))
    assert (known.count, known.side, known.squashed) == (9469, 256, True)
    assert "dsf data prepare imagenette --size 256" in known.missing
    assert find_images(load_recipe("imagenette-dsf", ["data.size=160"])).side == 160
    assert find_images(load_recipe("cifar10-dsf")).squashed is False
    assert find_images(load_recipe("imagenet100-dsf")).count == 126689
    folder = "data.name=folder:/nowhere"
    assert find_images(load_recipe("imagenet100-dsf", [folder])).count is None
    assert find_images(load_recipe("imagenet100-dsf", [folder, "data.limit=999"])).count == 999


@pytest.mark.usefixtures("nothing_prepared")
def test_an_unknown_number_of_images_leaves_only_the_time_open():
    overrides = [key for key in tiny.SETTINGS if not key.startswith("data.limit")]
    settings = load_recipe("demo", [*overrides, "data.name=folder:/nowhere", "data.size=16"])
    found = estimate(settings, steps=1)
    assert (found.steps_per_epoch, found.seconds) == (None, None)
    first, missing, *others = lines(found)
    assert first == "data        images of 16 pixels, how many is not known"
    assert "there is no folder /nowhere" in missing
    assert "time        not known without the number of images: data.limit=N says it" in others
    assert found.cost.images_per_second > 0


def test_the_manifest_counts_not_the_registry(tmp_path, monkeypatch):
    """A store may hold fewer images than the official split, where some were unreadable."""

    def open_source(request) -> Source:
        pixels = np.zeros((40, 12, 12, 3), dtype=np.uint8)
        labels = np.arange(40) % 2
        return ArraySource(
            "mine", ("a", "b"), {"train": (pixels, labels), "test": (pixels, labels)}
        )

    monkeypatch.setenv("DSF_DATA", str(tmp_path))
    monkeypatch.setitem(DATASETS, "mine", DataSet("mine", "", open_source, 12))
    prepare("mine")
    found = find_images(tiny.settings("data.name=mine"))
    assert (found.count, found.side, found.missing) == (40, 12, "")


def test_a_large_step_is_measured_on_fewer_images():
    """512 views of 64 pixels are twice what a CPU is asked for."""
    big = ["views.size=64", "batch_size=128", "data.limit=null", "optimiser.base_lr=0.12"]
    found = estimate(tiny.settings(*big, "device=cpu"), steps=1)
    assert found.measured_images == 64
    assert found.memory_bytes is None
    assert found.settings.batch_size == 128
    assert found.settings.optimiser.lr == 0.06
    assert found.cost.milliseconds == pytest.approx(64e3 / found.cost.images_per_second * 2)
    assert "; measured on 64 images" in "\n".join(lines(found))


def test_what_would_stop_the_run_stops_the_estimate(monkeypatch):
    with pytest.raises(ValueError, match="batch_size: must be at most the 96 images; got 128"):
        estimate(tiny.settings("batch_size=128"))
    with pytest.raises(ValueError, match="split must be one of"):
        estimate(tiny.settings("data.split=mine"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="dry-run: it measures one process"):
        estimate(tiny.settings())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_the_gpu():
    found = estimate(tiny.settings("device=cuda", "compile=false"), steps=2)
    assert 0 < found.memory_bytes < found.device_bytes
    assert "GiB" in lines(found)[3]
