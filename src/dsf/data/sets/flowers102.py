"""Oxford Flowers-102: 102 kinds of flowers, with lists in Matlab's format."""

from pathlib import Path

import numpy as np

from dsf.data.pictures import Item, PictureSource
from dsf.data.sets.unpacked import Unpacked
from dsf.data.source import DataSet, Integers, Request, Source

_LABELS = "imagelabels.mat"
_NUMBERS = "setid.mat"
_SPLITS = {"train": "trnid", "validation": "valid", "test": "tstid"}
_LAYOUT = Unpacked(
    "flowers102", ("flowers-102",), ("jpg", _LABELS, _NUMBERS), torchvision="Flowers102"
)


def open_source(request: Request) -> Source:
    """Open the official lists: numbers of images and of classes, both from 1."""
    _check_scipy()  # before a download that would be for nothing
    from torchvision.datasets import Flowers102

    classes: list[str] = Flowers102.classes
    folder = _LAYOUT.locate(request)
    labels = _numbers(folder / _LABELS, "labels")
    items = {}
    for split, key in _SPLITS.items():
        images = _numbers(folder / _NUMBERS, key)
        if images.max() > len(labels):
            raise ValueError(
                f"{folder}: {_NUMBERS} names image {images.max()}, {_LABELS} has {len(labels)}"
            )
        items[split] = [
            Item(folder / "jpg" / f"image_{image:05d}.jpg", int(labels[image - 1]) - 1)
            for image in images.tolist()
        ]
    if labels.max() > len(classes):
        raise ValueError(f"{folder / _LABELS}: a class is at most 102; got {labels.max()}")
    return PictureSource(folder, request.size, classes, items)


def _check_scipy() -> None:
    try:
        import scipy.io  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "the lists of flowers102 are Matlab files, which scipy reads: pip install "
            f"'dsf-ssl[flowers102]' ({error})"
        ) from None


def _numbers(path: Path, key: str) -> Integers:
    from scipy.io import loadmat

    try:
        found = np.asarray(loadmat(path, variable_names=[key])[key]).ravel()
        numbers = found.astype(np.int64)
    except Exception as error:
        # scipy fails on damaged files in every way: ValueError, TypeError, zlib.error, ...
        raise ValueError(f"{path} has no readable entry {key!r}: {error}") from None
    if not len(numbers) or numbers.min() < 1 or not np.array_equal(numbers, found):
        raise ValueError(f"{path}: {key} must be whole numbers from 1")
    return numbers


FLOWERS102 = DataSet(
    "flowers102",
    "8,189 photographs of 102 kinds of flowers (Nilsback and Zisserman, 2008)",
    open_source,
    224,
    resizable=True,
    splits={"train": 1020, "validation": 1020, "test": 6149},
    metric="mean per class",
    citation="Nilsback, Zisserman: Automated flower classification over a large number of "
    "classes. ICVGIP 2008",
    home="https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
)
