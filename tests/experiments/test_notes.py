import numpy as np
import pytest
import tiny

from dsf.data import Split, load
from dsf.experiments.build import resolve
from dsf.experiments.notes import notes


def of(*overrides):
    images = load("embedded")
    return notes(resolve(tiny.settings("device=cpu", *overrides), images), images)


def test_nothing_to_say():
    assert of("data.limit=96", "batch_size=32", "loss.queue=64", "views.size=32") == []
    assert of("data.limit=96", "batch_size=32", "views.size=32", "views.count=64") == []
    assert of("data.limit=96", "batch_size=32", "views.size=32", "knn={every: 1, k: 95}") == []


@pytest.mark.parametrize(
    ("overrides", "note"),
    [
        (["encoder.name=resnet18", "encoder.options={}"], "no GPU is used: --dry-run tells how"),
        (
            ["views.count=66"],
            "66 views of each of 32 images, 2,112 a step, are far more than the paper's 8 of each: "
            "views.count",
        ),
        (["views.count=4", "views.local={count: 62, size: 4}"], "66 views of each of 32 images"),
        (["views.size=12"], "views of 12 pixels are made of images of 32: views.size"),
        (["data.limit=50"], "the queue holds 64 keys of 50 images"),
        (["data.limit=96", "knn={every: 1, k: 96}"], "kNN on the way lets all 96 images vote"),
        (["data.limit=80"], "16 of 80 images, others each epoch, make no full batch"),
    ],
)
def test_each(overrides, note):
    usual = ["batch_size=32", "loss.queue=64", "views.size=32"]
    assert any(line.startswith(note) for line in of(*usual, *overrides))


def test_a_limit_that_leaves_few_classes():
    in_order = np.arange(100) // 10
    by_chance = np.random.default_rng(0).permutation(in_order)
    for labels, limit, warned in ((in_order, 40, 1), (in_order, 60, 0), (by_chance, 8, 0)):
        images = Split("train", [np.zeros((100, 32, 32, 3), np.uint8)], labels, None, "abcdefghij")
        settings = tiny.settings("device=cpu", f"data.limit={limit}", "batch_size=4")
        said = [note for note in notes(settings, images) if "classes" in note]
        expected = "the first 40 images, which data.limit leaves, have 4 of 10 classes"
        assert [note.partition(":")[0] for note in said] == [expected] * warned
