import numpy as np
import pytest
import torch

from dsf.data import Split
from dsf.evaluation import LabelledImages

CPU = torch.device("cpu")


@pytest.fixture
def arrays():
    images = torch.randint(0, 256, (10, 3, 8, 8), dtype=torch.uint8)
    return images, torch.arange(10) % 3, torch.arange(20).view(10, 2) + 5


@pytest.fixture(params=["tensor", "split"])
def whole(request, arrays):
    images, labels, sizes = arrays
    if request.param == "tensor":
        return LabelledImages(images, labels, sizes, name="mine")
    pixels = images.permute(0, 2, 3, 1).numpy()
    shards = [np.ascontiguousarray(pixels[:7]), np.ascontiguousarray(pixels[7:])]
    return LabelledImages(Split("mine", shards, labels.numpy(), sizes.numpy(), "abc"))


def gathered(images, samples):
    batches = list(images.batches(samples, CPU))
    for batch, asked in zip(batches, samples, strict=True):
        assert torch.equal(batch.samples, asked)
    return torch.cat([batch.images for batch in batches])


def test_batches_come_as_asked(whole, arrays):
    order = torch.randperm(10)
    assert torch.equal(gathered(whole, order.split(3)), arrays[0][order])
    assert whole.image_size == (8, 8)
    assert whole.squashed
    assert torch.equal(whole.sizes(order), arrays[2][order])


def test_parts_of_parts(whole, arrays):
    images, labels, sizes = arrays
    first = whole.part(torch.tensor([9, 7, 5, 3, 1]))
    part = first.part(torch.tensor([4, 0, 2]), name="few")
    rows = torch.tensor([1, 9, 5])
    assert len(part) == 3
    assert torch.equal(part.labels, labels[rows])
    samples = [torch.tensor([2, 0]), torch.tensor([1])]
    assert torch.equal(gathered(part, samples), images[rows[[2, 0, 1]]])
    assert torch.equal(part.sizes(torch.tensor([2])), sizes[[5]])
    assert torch.equal(part.to("cpu").labels, part.labels)
    assert (first.name, part.name) == ("mine", "few")


def test_joined(whole, arrays):
    images, labels, sizes = arrays
    both = whole.part(torch.tensor([8, 2])).joined(whole.part(torch.tensor([0])))
    rows = torch.tensor([8, 2, 0])
    assert torch.equal(gathered(both, [torch.arange(3)]), images[rows])
    assert torch.equal(both.labels, labels[rows])
    assert torch.equal(both.sizes(torch.arange(3)), sizes[rows])
    other = LabelledImages(images, labels, name="other")
    with pytest.raises(ValueError, match="mine and other must be stored alike"):
        whole.joined(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": torch.zeros(10, 3, 8, 8)}, "source must be a Split, or uint8.*float32"),
        ({"labels": torch.arange(9)}, r"mine: labels must be integers of \(10,\); got .*\(9,\)"),
        ({"labels": torch.zeros(10)}, r"mine: labels must be integers.*got torch.float32"),
        ({"labels": None}, "mine: labels must be integers.*got None"),
        ({"sizes": torch.ones(10, 3)}, r"mine: sizes must be \(10, 2\); got \(10, 3\)"),
        ({"rows": torch.arange(0)}, "mine has no images: there is nothing to evaluate"),
    ],
)
def test_errors(arrays, change, message):
    images, labels, sizes = arrays
    arguments = {"source": images, "labels": labels, "sizes": sizes, "name": "mine"}
    with pytest.raises(ValueError, match=message):
        LabelledImages(**(arguments | change))


def test_an_empty_split():
    nothing = torch.zeros(0, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(ValueError, match="test has no images"):
        LabelledImages(nothing, torch.arange(0), name="test")
