"""STL-10: 10 classes, and 100,000 images without labels, as raw bytes."""

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from dsf.data.sets.unpacked import Unpacked, table
from dsf.data.source import Advance, Bytes, Chunk, DataSet, Integers, Request, Source

_SIZE = 96
_SHAPE = (3, _SIZE, _SIZE)
_CLASSES = "class_names.txt"
_FILES = {
    "train": ("train_X.bin", "train_y.bin"),
    "test": ("test_X.bin", "test_y.bin"),
    "unlabelled": ("unlabeled_X.bin", None),
}
_LAYOUT = Unpacked(
    "stl10",
    ("stl10_binary",),
    (_CLASSES, *(file for pair in _FILES.values() for file in pair if file)),
    torchvision="STL10",
)


class STL10Source(Source):
    """The images as memory maps: without labels they are 2.8 GB.

    Args:
        folder: of the raw files.
        size: the side of the squares.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.description = str(folder.absolute())
        self.image_size = size
        self.classes = tuple(name for (name,) in table(folder / _CLASSES, 1))
        self._images = {split: _images(folder / file) for split, (file, _) in _FILES.items()}
        self.splits = {split: len(images) for split, images in self._images.items()}
        self._labels = {
            split: _labels(folder / file, self.splits[split], len(self.classes))
            for split, (_, file) in _FILES.items()
            if file
        }
        states = [(folder / part).stat() for part in _LAYOUT.parts]
        marks = [(state.st_size, state.st_mtime_ns) for state in states]
        self.fingerprint = hashlib.sha256(repr(marks).encode()).hexdigest()

    def read(self, split: str, start: int, stop: int, advance: Advance) -> Chunk:
        """The images from ``start`` to ``stop``; others than 96 pixels are squashed to."""
        # colour planes of columns, from left to right
        images = np.ascontiguousarray(self._images[split][start:stop].transpose(0, 3, 2, 1))
        labels = self._labels[split][start:stop] if split in self._labels else None
        sizes = None
        if self.image_size != _SIZE:
            images = np.stack([_squash(image, self.image_size) for image in images])
            sizes = np.full((len(images), 2), _SIZE, dtype=np.int64)
        advance(stop - start)
        return Chunk(images, labels, sizes)


def open_source(request: Request) -> Source:
    """Open the raw files."""
    return STL10Source(_LAYOUT.locate(request), request.size)


def _images(path: Path) -> Bytes:
    count, rest = divmod(path.stat().st_size, int(np.prod(_SHAPE)))
    if rest or not count:
        raise ValueError(
            f"{path} is not whole: it must have a multiple of {np.prod(_SHAPE)} bytes; "
            f"got {path.stat().st_size}"
        )
    return np.memmap(path, np.uint8, mode="r", shape=(count, *_SHAPE))


def _labels(path: Path, images: int, classes: int) -> Integers:
    labels = np.fromfile(path, np.uint8).astype(np.int64) - 1
    if len(labels) != images:
        raise ValueError(f"{path} must have {images} labels; got {len(labels)}")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{path}: labels must be in [1, {classes}]; got {labels.min() + 1} to "
            f"{labels.max() + 1}"
        )
    return labels


def _squash(image: Bytes, size: int) -> Bytes:
    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC))


STL10 = DataSet(
    "stl10",
    "13,000 photographs in 10 classes, 100,000 without (Coates et al., 2011)",
    open_source,
    _SIZE,
    resizable=True,
    splits={"train": 5000, "test": 8000, "unlabelled": 100000},
    citation="Coates, Lee, Ng: An analysis of single-layer networks in unsupervised feature "
    "learning. AISTATS 2011",
    home="https://cs.stanford.edu/~acoates/stl10/",
)
