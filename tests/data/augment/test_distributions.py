"""What is drawn follows torchvision's distributions, and so do the views as a whole."""

import random

import pytest
import torch
from pil_reference import images, pipeline, same_distribution, to_pil
from torchvision import transforms
from torchvision.transforms import autoaugment

from dsf.data.augment import OPERATIONS, RECIPES, Draw, Recipe, Views

COUNT = 4000
CIFAR = RECIPES["cifar"]


def drawn(recipe, size=(32, 32), count=COUNT, seed=0):
    sizes = torch.tensor(size).expand(count, 2)
    return Draw(recipe, seed)(torch.arange(count), torch.tensor(0), torch.arange(1), sizes)


@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [
        ((32, 32), (0.2, 1.0), (3 / 4, 4 / 3)),
        ((375, 500), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((300, 100), (0.5, 1.0), (3 / 4, 4 / 3)),  # half of the draws fall back
        ((100, 300), (0.9, 1.0), (3 / 4, 4 / 3)),  # all do
        ((40, 40), (1.0, 1.0), (1.0, 1.0)),
    ],
)
def test_crop(size, scale, ratio):
    ours = drawn(Recipe(crop_scale=scale, crop_ratio=ratio), size)
    picture = torch.zeros(3, *size)
    get = transforms.RandomResizedCrop.get_params
    theirs = torch.tensor([get(picture, list(scale), list(ratio)) for _ in range(COUNT)])
    mine = torch.stack([ours.top, ours.left, ours.height, ours.width], -1)
    for column in range(4):
        same_distribution(mine[:, column], theirs[:, column])
    same_distribution(mine[:, 2] / mine[:, 3], theirs[:, 2] / theirs[:, 3])
    same_distribution(mine[:, 2] * mine[:, 3], theirs[:, 2] * theirs[:, 3])
    assert (mine >= 0).all()
    assert (ours.top + ours.height <= size[0]).all()
    assert (ours.left + ours.width <= size[1]).all()
    assert (mine[:, 2:] > 0).all()


def test_jitter():
    ours = drawn(Recipe(jitter=1.0, brightness=0.4, contrast=0.3, saturation=0.2, hue=0.1))
    jitter = transforms.ColorJitter(0.4, 0.3, 0.2, 0.1)
    ranges = (jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
    theirs = [jitter.get_params(*ranges) for _ in range(COUNT)]
    for kind in range(3):
        same_distribution(ours.factors[:, kind], [x[1 + kind] for x in theirs])
    same_distribution(ours.hue, [int(x[4] * 255) for x in theirs])
    base = torch.tensor([64, 16, 4, 1])
    same_distribution(ours.order @ base, torch.stack([x[0] for x in theirs]) @ base)
    assert (ours.order.sort(-1).values == torch.arange(4)).all()


def test_blur():
    theirs = [transforms.GaussianBlur.get_params(0.1, 2.0) for _ in range(COUNT)]
    same_distribution(drawn(Recipe(blur=1.0)).radius, theirs)


def test_randaugment(monkeypatch):
    ours = drawn(Recipe(randaugment=1.0, operations=3), count=5 * COUNT)
    theirs = []

    def record(picture, name, magnitude, **_):
        theirs.append((OPERATIONS.index(name), magnitude < 0))
        return picture

    monkeypatch.setattr(autoaugment, "_apply_op", record)
    randaugment, picture = transforms.RandAugment(3, 9), torch.zeros(3, 32, 32, dtype=torch.uint8)
    for _ in range(5 * COUNT):
        randaugment(picture)
    theirs = torch.tensor(theirs).reshape(-1, 3, 2)
    signed = (ours.operations >= 1) & (ours.operations <= 9)
    mine = 2 * ours.operations + (ours.negative & signed)
    for place in range(3):
        same_distribution(mine[:, place], 2 * theirs[:, place, 0] + theirs[:, place, 1])
    pairs = ours.operations[:, 0] * 14 + ours.operations[:, 1]
    same_distribution(pairs, theirs[:, 0, 0] * 14 + theirs[:, 1, 0])


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.8, 1.0])
def test_probabilities(probability):
    names = ("randaugment", "jitter", "grayscale", "blur", "solarize", "flip")
    ours = drawn(Recipe(**dict.fromkeys(names, probability)), count=20_000)
    happened = {
        "randaugment": ours.operations.any(-1) | (probability == 1),
        "jitter": ours.jitter,
        "grayscale": ours.grayscale,
        "blur": ours.radius > 0,
        "solarize": ours.solarize,
        "flip": ours.flip,
    }
    deviation = 4 * (probability * (1 - probability) / 20_000) ** 0.5
    for name, chosen in happened.items():
        expected = probability
        if name == "randaugment" and probability < 1:
            expected *= 1 - 1 / 14**2  # two identities cannot be told from none
        assert abs(chosen.double().mean().item() - expected) <= deviation, name
    events = torch.stack([x.double() for x in list(happened.values())[1:]])
    if 0 < probability < 1:
        assert (events.corrcoef() - torch.eye(5)).abs().max() < 4 / 20_000**0.5


def test_without_jitter_parameters_are_neutral():
    ours = drawn(Recipe(jitter=0.5))
    still = ~ours.jitter
    assert (ours.factors[still] == 1).all()
    assert (ours.hue[still] == 0).all()
    assert (ours.factors[ours.jitter] != 1).any(-1).all()
    assert (ours.radius == 0).all()
    assert (ours.operations == 0).all()


def levels_of(recipe, size, exact, batch, count):
    """Per-channel mean and deviation of the levels of our views."""
    views = Views(recipe, size=size, exact=exact)
    mean, std = (torch.tensor(x)[:, None, None] for x in (views.recipe.mean, views.recipe.std))
    samples, parts = torch.arange(len(batch)), []
    for first in range(0, count, 16):
        ids = torch.arange(first, min(first + 16, count))
        pixels = views(batch, samples, 0, ids).flatten(0, 1) * std + mean
        parts.append(pixels.transpose(0, 1).flatten(1).double())
    pixels = torch.cat(parts, dim=1)
    return torch.stack([pixels.mean(1), pixels.std(1)])


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_means_and_deviations_of_20000_views(name):
    """Within 2 % of torchvision's pipeline, a channel each, in both forms."""
    batch = images()
    count = 20_000 // len(batch) + 1
    random.seed(0)
    transform = pipeline(RECIPES[name], 32)
    theirs = torch.stack(
        [
            transforms.functional.to_tensor(transform(picture)).double()
            for picture in to_pil(batch)
            for _ in range(count)
        ]
    )
    expected = torch.stack([theirs.mean((0, 2, 3)), theirs.transpose(0, 1).flatten(1).std(1)])
    for exact in (True, False):
        ours = levels_of(name, 32, exact, batch, count)
        torch.testing.assert_close(ours, expected, rtol=0.02, atol=0)
