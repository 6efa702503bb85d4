"""``data.limit``: some of the images, whatever the order in which they lie."""

import numpy as np
import pytest
import tiny
import torch

from dsf.data import Split
from dsf.experiments import build
from dsf.experiments.subjects import make_task
from dsf.random import some

CPU = torch.device("cpu")


@pytest.mark.parametrize("resident", [True, False])
def test_batches_are_of_these_images(resident):
    # Image i is of the grey i; ten classes, one after the other.
    pixels = np.broadcast_to(np.arange(200, dtype=np.uint8)[:, None, None, None], (200, 8, 8, 3))
    split = Split("train", [pixels.copy()], np.arange(200) // 20, None, "abcdefghij")
    settings = tiny.settings("data.limit=50", "batch_size=10", f"data.resident={resident}")
    batches = build.build_batches(settings, split, CPU)
    assert len(batches) == 5
    for epoch in range(2):
        seen = []
        for samples, images in batches.epoch(epoch):
            assert torch.equal(images[:, 0, 0, 0].long(), samples)
            seen += samples.tolist()
        assert sorted(seen) == some(200, 50).tolist()
    assert len(set(split.labels()[torch.tensor(seen)].tolist())) == 10


def test_evaluations_learn_from_the_images_of_training():
    settings = tiny.settings()
    split = build.load_split(settings, "train")
    trained = [batch.samples for batch in build.build_batches(settings, split, CPU).epoch(0)]
    rows = torch.cat(trained).sort().values
    task = make_task("embedded", None, len(rows), CPU)
    found = torch.cat([batch.images for batch in task.train.batches([torch.arange(96)], CPU)])
    assert torch.equal(found, split.images("cpu")[rows])
    assert torch.equal(task.train.labels, split.labels()[rows])


def test_a_limit_that_leaves_one_class():
    message = "embedded, 1 of the 5,000 images of split train must have images of two classes"
    with pytest.raises(ValueError, match=message):
        make_task("embedded", None, 1, CPU)
