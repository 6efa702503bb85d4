"""Picture files with labels, decoded on all cores into squares."""

import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsf.data.images import EXTENSIONS, UnreadableImageError, read_square
from dsf.data.source import Advance, Bytes, Chunk, LeftOut, Source


class Item(NamedTuple):
    """A file, and the number of its class (-1 without)."""

    path: Path
    label: int


class PictureSource(Source):
    """Picture files in the order given.

    Args:
        path: the folder that they all lie below.
        size: the side of the squares.
        classes: the names of the classes; empty without labels.
        items: the files of each split.
        description: where they come from; by default the folder.
        note: how the splits were made, where there was a choice.
    """

    def __init__(
        self,
        path: Path,
        size: int,
        classes: Sequence[str],
        items: Mapping[str, Sequence[Item]],
        description: str | None = None,
        note: str = "",
    ) -> None:
        self.path = path
        self.image_size = size
        self.classes = tuple(classes)
        self.items = dict(items)
        self.description = str(path.absolute()) if description is None else description
        self.note = note
        self.splits = {split: len(files) for split, files in self.items.items()}
        self.fingerprint = self._fingerprint()

    def read(self, split: str, start: int, stop: int, advance: Advance) -> Chunk:
        """The images from ``start`` to ``stop``, decoded on all cores that there are for us."""
        kept: list[Item] = []
        images: list[Bytes] = []
        sizes: list[tuple[int, int]] = []
        left_out: list[LeftOut] = []
        items = self.items[split][start:stop]
        with warnings.catch_warnings(), ThreadPoolExecutor(cores()) as pool:
            # Pillow's doubts about size and EXIF: the first is checked, the second does not matter.
            warnings.filterwarnings("ignore", module="PIL")
            for item, result in zip(items, pool.map(self._decode, items), strict=True):
                if isinstance(result, str):
                    left_out.append(LeftOut(self._relative(item.path), result))
                else:
                    kept.append(item)
                    images.append(result[0])
                    sizes.append(result[1])
                advance(1)
        labels = np.array([item.label for item in kept], dtype=np.int64)
        shape = (len(kept), self.image_size, self.image_size, 3)
        return Chunk(
            np.stack(images) if images else np.empty(shape, np.uint8),
            labels if self.classes else None,
            np.array(sizes, dtype=np.int64).reshape(-1, 2),
            left_out,
        )

    def _decode(self, item: Item) -> tuple[Bytes, tuple[int, int]] | str:
        try:
            return read_square(item.path, self.image_size)
        except UnreadableImageError as error:
            return str(error)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for split, items in self.items.items():
            for path, label in items:
                digest.update(repr((split, self._relative(path), label, *_state(path))).encode())
        return digest.hexdigest()


def cores() -> int:
    """Those that this process may use: a cluster's job has some of many, and memory for as many."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, by name, without hidden ones."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def pictures(folder: Path) -> list[Path]:
    """The picture files in a folder, by name, without hidden ones."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in EXTENSIONS
        and not path.name.startswith(".")
        and (path.is_file() or (path.is_symlink() and not path.is_dir()))  # dead links are reported
    )


def pictures_below(folder: Path, above: frozenset[str] = frozenset()) -> Iterator[Path]:
    """The picture files in a folder, then those in the folders below it."""
    real = os.path.realpath(folder)
    if real in above:
        return  # a link to a folder that holds it
    yield from pictures(folder)
    for sub in subfolders(folder):
        yield from pictures_below(sub, above | {real})


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)
