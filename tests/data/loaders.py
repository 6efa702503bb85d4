"""Small loaders on the CPU."""

from dataclasses import replace

import torch

from dsf.data import ViewLoader
from dsf.data.augment import RECIPES

# Fast ones: half of the time of a batch is RandAugment's.
RECIPE = replace(RECIPES["cifar"], randaugment=0.0, blur=0.0)


def images(count=23, size=8):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)


def make(data=None, batch_size=4, views=2, recipe=RECIPE, **options):
    data = (images(), torch.arange(23) % 5) if data is None else data
    return ViewLoader(data, batch_size, views, recipe, device="cpu", **options)


def samples(loader):
    return [batch.samples.tolist() for batch in loader]


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(a, b)
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left, right)
    )
