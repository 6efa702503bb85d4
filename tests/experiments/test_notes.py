import pytest
import tiny

from dsf.data import load
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
