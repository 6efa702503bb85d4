import pytest
import torch

from dsf.data import load
from dsf.evaluation import LabelledImages, Subject, Task, extract
from dsf.models import create_encoder

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def encode(width, train, test):
    """Features of embedded images by an untrained ResNet, and their labels."""
    torch.manual_seed(0)
    encoder = create_encoder("resnet-small", width=width)
    result = []
    for name, count in (("train", train), ("test", test)):
        split = load("embedded", name)
        # The images lie in the original order, so that every class is among the first.
        result += [extract(encoder, split.images()[:count], MEAN, STD, 250), split.labels()[:count]]
    return result


@pytest.fixture(scope="session")
def real():
    """A small set: (train features, train labels, test features, test labels)."""
    return encode(4, 1500, 500)


@pytest.fixture(scope="session")
def real_whole():
    """All embedded images, and an encoder as large as the demo's: takes a minute."""
    return encode(16, 5000, 1000)


def coloured(count, seed, size=16, classes=3):
    """Noise around one colour a class: easy to tell apart, also for an untrained encoder."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    colours = torch.tensor([[200, 60, 60], [60, 200, 60], [60, 60, 200], [200, 200, 60]])
    noise = torch.randint(-55, 56, (count, 3, size, size), generator=generator)
    images = (colours[labels][:, :, None, None] + noise).to(torch.uint8)
    return images, labels


@pytest.fixture
def make_subject():
    """Make a small subject: an untrained encoder, with a head, on coloured noise."""

    def make(train=48, test=24, size=16, project=True, shuffle=None, validation=None, **options):
        torch.manual_seed(1)
        encoder = create_encoder("resnet-small", width=4)
        head = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.BatchNorm1d(8))
        images, labels = coloured(test, seed=1, size=size)
        if shuffle is not None:
            labels = labels[torch.randperm(test, generator=torch.Generator().manual_seed(shuffle))]
        learned = LabelledImages(*coloured(train, seed=0, size=size), name="train")
        held = None
        if validation is not None:
            more = LabelledImages(*coloured(validation, seed=2, size=size), name="validation")
            learned, held = learned.joined(more), torch.arange(train, train + validation)
        metric = options.pop("metric", "top-1")
        task = Task(
            learned,
            LabelledImages(images, labels, name="test"),
            options.pop("classes", 3),
            held,
            metric,
        )
        return Subject(encoder, task, project=head if project else None, **options)

    return make
