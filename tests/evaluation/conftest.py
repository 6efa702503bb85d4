import pytest
import torch

from dsf.data import load
from dsf.evaluation import extract
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
