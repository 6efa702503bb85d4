"""A data set before it is a store: what a source of images has to say and to do."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsf.data.progress import Progress

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Advance = Callable[[int], None]
Metric = Literal["top-1", "mean per class"]

LARGEST_SIZE = 4096


class Content(NamedTuple):
    """sha256 of a split's decoded arrays: uint8 images (N, H, W, 3), little-endian int64 labels."""

    images: str
    labels: str


class LeftOut(NamedTuple):
    """An image that could not be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Chunk:
    """Some consecutive images of a split.

    Args:
        images: (n, size, size, 3) in RGB.
        labels: (n,), or None without classes.
        sizes: (n, 2), the height and width before squashing; None where nothing was squashed.
        left_out: what should have been among them.
    """

    images: Bytes
    labels: Integers | None = None
    sizes: Integers | None = None
    left_out: Sequence[LeftOut] = ()


class Source(ABC):
    """Images in a fixed order.

    Args:
        description: where they come from, for the manifest.
        image_size: the side of the square images.
        classes: the names of the classes; empty without labels.
        splits: how many images each split should have.
        fingerprint: changes with the content.
        content: the hashes of each split, where they are known before reading.
        ignored: how many files lay there that are no images, by their extension.
        note: how the splits were made, where the source leaves a choice.
    """

    description: str
    image_size: int
    classes: tuple[str, ...]
    splits: dict[str, int]
    fingerprint: str
    content: Mapping[str, Content] = MappingProxyType({})
    ignored: Mapping[str, int] = MappingProxyType({})
    note: str = ""

    @abstractmethod
    def read(self, split: str, start: int, stop: int, advance: Advance) -> Chunk:
        """The images from ``start`` to ``stop``; calls ``advance`` with each number read."""


class ArraySource(Source):
    """A source that is small enough to be in memory: split -> (images, labels)."""

    def __init__(
        self,
        description: str,
        classes: Sequence[str],
        arrays: Mapping[str, tuple[Bytes, Integers]],
    ) -> None:
        self.description = description
        self.classes = tuple(classes)
        self.splits = {split: len(images) for split, (images, _) in arrays.items()}
        self.image_size = next(iter(arrays.values()))[0].shape[1]
        self._arrays = dict(arrays)
        for split, (images, labels) in arrays.items():
            _check(f"{description}, split {split}", images, labels, len(self.classes))
        self.content = {split: content_hash(*pair) for split, pair in arrays.items()}
        self.fingerprint = hashlib.sha256(repr(sorted(self.content.items())).encode()).hexdigest()

    def read(self, split: str, start: int, stop: int, advance: Advance) -> Chunk:
        """The images from ``start`` to ``stop``."""
        images, labels = self._arrays[split]
        advance(stop - start)
        return Chunk(images[start:stop], labels[start:stop])


def content_hash(images: Bytes, labels: Integers) -> Content:
    """The hashes that tell whether two sources hold the same split."""
    pixels = np.ascontiguousarray(images).reshape(-1).data
    return Content(hashlib.sha256(pixels).hexdigest(), labels_hash(labels))


def labels_hash(labels: Integers) -> str:
    """The hash of labels, whatever the machine's byte order."""
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()


class Request(NamedTuple):
    """What ``prepare`` asks a data set for.

    Args:
        source: what ``--source`` says; None to look for it.
        size: the side of the square images.
        downloads: a folder for what must be downloaded.
        progress: how to tell about it.
    """

    source: str | None
    size: int
    downloads: Path
    progress: Progress


@dataclass(frozen=True)
class DataSet:
    """An entry of the registry.

    Args:
        name: as the command line spells it.
        summary: a few words for ``dsf data list``.
        open_source: finds and opens a source of the images.
        image_size: the side of its images; of a resizable one, unless another is asked for.
        resizable: whether its images are squashed to any size, each a store of its own.
        splits: how many images the official splits have, where that is known.
        metric: what is reported of a classifier: the share of all test images that it gets right,
            or the mean of that share over the classes.
        citation: whom to cite.
        home: where it is described.
        content: the known hashes of each split; empty where none are known.
        fixed: whether the content never changes; if not, ``prepare`` looks at the source again.
        sources: words that ``--source`` takes besides ``download``.
    """

    name: str
    summary: str
    open_source: Callable[[Request], Source]
    image_size: int
    resizable: bool = False
    splits: Mapping[str, int] = field(default_factory=dict)
    metric: Metric = "top-1"
    citation: str = ""
    home: str = ""
    content: Mapping[str, Content] = field(default_factory=dict)
    fixed: bool = True
    sources: tuple[str, ...] = ()

    @property
    def store_name(self) -> str:
        """The name of the store's folder."""
        return f"{self.name}-{self.image_size}" if self.resizable else self.name

    def at(self, size: int | None) -> "DataSet":
        """The same in another size; None changes nothing."""
        if size is None or size == self.image_size:
            return self
        if not self.resizable:
            raise ValueError(fixed_size(self.name, self.image_size, size))
        if not 1 <= size <= LARGEST_SIZE:
            raise ValueError(f"size must be in [1, {LARGEST_SIZE}]; got {size}")
        return replace(self, image_size=size)

    def check_counts(self, source: Source) -> None:
        """Raise unless the source has as many images as the official splits."""
        for split, expected in self.splits.items():
            found = source.splits.get(split, 0)
            if found != expected:
                raise ValueError(
                    f"{source.description} does not hold all of {self.name}: {found:,} {split} "
                    f"images, must be {expected:,}"
                )

    def check(self, where: str, content: Mapping[str, Content]) -> None:
        """Raise unless the content is this data set's."""
        for split, expected in self.content.items():
            found = content.get(split)
            for part in Content._fields:
                have = getattr(found, part, "nothing")
                if have != getattr(expected, part):
                    raise ValueError(
                        f"{where} does not hold {self.name}: sha256 of the {split} {part} is "
                        f"{have}, must be {getattr(expected, part)}"
                    )


def fixed_size(name: str, have: int, got: int) -> str:
    """What to say of a size that images are not stored in."""
    return f"size: the images of {name} have {have} pixels and are kept so; got {got}"


def _check(where: str, images: Bytes, labels: Integers, classes: int) -> None:
    size = images.shape[1] if images.ndim == 4 else 0
    if images.dtype != np.uint8 or images.shape[1:] != (size, size, 3) or not len(images):
        raise ValueError(
            f"{where}: images must be uint8 of shape (N, size, size, 3); "
            f"got {images.dtype} {images.shape}"
        )
    if labels.shape != (len(images),):
        raise ValueError(f"{where}: {len(images)} images but labels of shape {labels.shape}")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{where}: labels must be in [0, {classes}); got {labels.min()} to {labels.max()}"
        )
