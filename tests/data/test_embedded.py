from importlib.resources import files

import numpy as np
import pytest
import torch

from dsf.data import load, open_store
from dsf.data.source import content_hash

ORIGIN = files("dsf.data.embedded").joinpath("ORIGIN.md").read_text()


@pytest.mark.parametrize(("split", "each"), [("train", 500), ("test", 100)])
def test_content(split, each):
    data = load("embedded", split)
    images, labels = data.images(), data.labels()
    assert images.shape == (10 * each, 3, 32, 32)
    assert torch.equal(labels.bincount(), torch.full((10,), each))
    # sha256 of these images as they were picked from the verified data set
    content = content_hash(images.permute(0, 2, 3, 1).numpy(), labels.numpy())
    assert content.images in ORIGIN
    assert content.labels in ORIGIN
    assert data.classes[0] == "airplane"
    assert len(data.classes) == 10


def test_it_starts_like_cifar10():
    assert load("embedded", "train").labels()[:8].tolist() == [6, 9, 9, 4, 1, 1, 2, 7]
    assert load("embedded", "test").labels()[:8].tolist() == [3, 8, 8, 0, 6, 6, 1, 6]


@pytest.mark.parametrize(("split", "each"), [("train", 500), ("test", 100)])
def test_it_is_a_part_of_cifar10(split, each):
    try:
        whole = open_store("cifar10").split(split)
    except FileNotFoundError:
        pytest.skip("cifar10 is not prepared on this machine")
    labels = whole.labels().numpy()
    first = np.sort(np.concatenate([np.flatnonzero(labels == c)[:each] for c in range(10)]))
    part = load("embedded", split)
    assert torch.equal(part.images(), whole.gather(torch.from_numpy(first)))
    assert torch.equal(part.labels(), whole.labels()[torch.from_numpy(first)])
    assert part.classes == whole.classes


def test_tensors_are_the_callers_own():
    load("embedded", "test").images().zero_()
    assert load("embedded", "test").images().any()


def test_unknown_split():
    with pytest.raises(ValueError, match=r"split must be one of \('train', 'test'\); got 'val'"):
        load("embedded", "val")
