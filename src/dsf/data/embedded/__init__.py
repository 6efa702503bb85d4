"""6,000 images of CIFAR-10 inside the package, so that a first try needs nothing from outside.

The first 500 training and 100 test images of every class, in their original order. Each split is a
lossless WebP picture of 50 images a row; ORIGIN.md says where they come from and how to cite them.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from PIL import Image

from dsf.data.source import Bytes, Integers
from dsf.data.split import Split

_SIZE = 32
_FOLDER = files(__name__)


def load(split: str) -> Split:
    """The split ``train`` (5,000 images) or ``test`` (1,000), in memory."""
    images, labels, classes = _decode(split)
    return Split(split, [images], labels, classes=classes)


def counts() -> dict[str, int]:
    """The number of images in each split."""
    return {split: len(labels) for split, labels in _labels()["splits"].items()}


@cache
def _labels() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(_FOLDER.joinpath("labels.json").read_text())
    return known


@cache
def _decode(split: str) -> tuple[Bytes, Integers, tuple[str, ...]]:
    known = _labels()
    if split not in known["splits"]:
        raise ValueError(f"split must be one of {tuple(known['splits'])}; got {split!r}")
    labels = np.array([int(digit) for digit in known["splits"][split]], dtype=np.int64)
    with _FOLDER.joinpath(f"{split}.webp").open("rb") as file, Image.open(file) as picture:
        grid = np.asarray(picture.convert("RGB"))
    rows, columns = (side // _SIZE for side in grid.shape[:2])
    tiles = grid.reshape(rows, _SIZE, columns, _SIZE, 3).swapaxes(1, 2)
    images = np.ascontiguousarray(tiles).reshape(-1, _SIZE, _SIZE, 3)
    images.flags.writeable = labels.flags.writeable = False  # shared by all who load them
    return images, labels, tuple(known["classes"])
