"""Caltech-101: 101 kinds of objects, without an official split."""

import torch

from dsf.data.pictures import Item, PictureSource, pictures, subfolders
from dsf.data.sets.unpacked import Unpacked
from dsf.data.source import DataSet, Request, Source
from dsf.random import permutation

_TRAIN = 30
_SEED = 0
_IMAGES = "101_ObjectCategories"
_BACKGROUND = "BACKGROUND_Google"  # pictures of anything: no class
_LAYOUT = Unpacked("caltech101", ("caltech101", "caltech-101"), (_IMAGES,), "Caltech101")


def open_source(request: Request) -> Source:
    """Open a folder for each class, and draw 30 training images of each.

    The drawing depends on the number of a class and of its images alone, on every machine.
    """
    folder = _LAYOUT.locate(request)
    found = [sub for sub in subfolders(folder / _IMAGES) if sub.name != _BACKGROUND]
    items: dict[str, list[Item]] = {"train": [], "test": []}
    for label, sub in enumerate(found):
        files = pictures(sub)
        if len(files) <= _TRAIN:
            raise ValueError(f"{sub} must have more than {_TRAIN} images; got {len(files)}")
        order = permutation(_SEED, torch.tensor(label), 0, torch.arange(len(files))).tolist()
        for split, chosen in (("train", order[:_TRAIN]), ("test", order[_TRAIN:])):
            items[split] += [Item(files[number], label) for number in sorted(chosen)]
    note = f"{_TRAIN} training images a class, drawn with seed {_SEED}; the others are for testing"
    return PictureSource(folder, request.size, [sub.name for sub in found], items, note=note)


CALTECH101 = DataSet(
    "caltech101",
    "8,677 pictures of 101 kinds of objects (Fei-Fei et al., 2004)",
    open_source,
    224,
    resizable=True,
    splits={"train": 3030, "test": 5647},
    metric="mean per class",
    citation="Fei-Fei, Fergus, Perona: Learning generative visual models from few training "
    "examples. CVPR workshop 2004",
    home="https://data.caltech.edu/records/mzrjq-6wc02",
)
