"""Any folder of images: a folder per class, or flat and without labels."""

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsf.data.images import EXTENSIONS, UnreadableImageError, read_square
from dsf.data.progress import Progress
from dsf.data.source import Advance, Bytes, Chunk, DataSet, LeftOut, Source

DEFAULT_SIZE = 256
PREFIX = "folder:"
_SPLITS = ("train", "val", "test")


class Item(NamedTuple):
    """A file, and the number of its class (-1 without)."""

    path: Path
    label: int


class FolderSource(Source):
    """The images below a folder, in the order of their names.

    ``PATH/CLASS/...`` or ``PATH/*`` make the split ``train``; with ``PATH/train`` and perhaps
    ``PATH/val`` and ``PATH/test`` and no other folders, each of these is a split.

    Args:
        path: the folder.
        size: the side of the squares.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.image_size = size
        self.description = f"{PREFIX}{path}"
        folders = _split_folders(path)
        names = {split: _class_names(folder) for split, folder in folders.items()}
        self.classes = tuple(sorted(set().union(*names.values())))
        unlabelled = [split for split, classes in names.items() if not classes]
        if self.classes and unlabelled:
            raise ValueError(
                f"{path}: all splits must have class folders or none; {unlabelled[0]} has none"
            )
        numbers = {name: number for number, name in enumerate(self.classes)}
        self.items = {split: list(_items(folder, numbers)) for split, folder in folders.items()}
        for split, items in self.items.items():
            if not items:
                raise ValueError(f"{folders[split]} has no images ({_extensions()})")
        self.splits = {split: len(items) for split, items in self.items.items()}
        self.ignored = _ignored(path)
        self.fingerprint = self._fingerprint()

    def read(self, split: str, start: int, stop: int, advance: Advance) -> Chunk:
        """The images from ``start`` to ``stop``, decoded on all cores."""
        kept: list[Item] = []
        images: list[Bytes] = []
        sizes: list[tuple[int, int]] = []
        left_out: list[LeftOut] = []
        items = self.items[split][start:stop]
        with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
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


def folder_data_set(name: str, size: int | None) -> DataSet:
    """The data set that ``folder:PATH`` names; its store is named after folder, path and size."""
    path = Path(name.removeprefix(PREFIX)).expanduser().absolute()
    side = DEFAULT_SIZE if size is None else size
    if not 1 <= side <= 4096:
        raise ValueError(f"size must be in [1, 4096]; got {side}")

    def open_source(source: str | None, downloads: Path, progress: Progress) -> Source:
        if source is not None:
            raise ValueError(f"source: {name} says itself where the images are; got {source!r}")
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is not a folder")
        return FolderSource(path, side)

    return DataSet(
        f"{store_prefix(name)}{side}", f"images below {path}", open_source, side, fixed=False
    )


def store_prefix(name: str) -> str:
    """The name of a folder's store up to the size: readable, and different for each path."""
    path = Path(name.removeprefix(PREFIX)).expanduser().absolute()
    mark = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in path.name) or "root"
    return f"folder-{readable}-{mark}-"


def _split_folders(path: Path) -> dict[str, Path]:
    names = {folder.name for folder in _subfolders(path)}
    if "train" in names and names <= set(_SPLITS) and not _images(path):
        return {split: path / split for split in _SPLITS if split in names}
    return {"train": path}


def _class_names(folder: Path) -> list[str]:
    classes = [sub.name for sub in _subfolders(folder)]
    if classes and _images(folder):
        raise ValueError(
            f"{folder} must hold images or class folders; it has both: "
            f"{_images(folder)[0].name} and {classes[0]}/"
        )
    return classes


def _items(folder: Path, numbers: dict[str, int]) -> Iterator[Item]:
    classes = _subfolders(folder)
    if not classes:
        yield from (Item(path, -1) for path in _images(folder))
    for sub in classes:
        for path in _walk(sub, set()):
            yield Item(path, numbers[sub.name])


def _walk(folder: Path, above: set[str]) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if real in above:
        return  # a link to a folder that holds it
    yield from _images(folder)
    for sub in _subfolders(folder):
        yield from _walk(sub, above | {real})


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in EXTENSIONS
        and not path.name.startswith(".")
        and (path.is_file() or (path.is_symlink() and not path.is_dir()))  # dead links are reported
    )


def _ignored(folder: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        suffixes = (Path(where, name).suffix.lower() for name in names if name[0] != ".")
        counts.update(suffix for suffix in suffixes if suffix not in EXTENSIONS)
    return dict(sorted(counts.items()))


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)


def _extensions() -> str:
    return ", ".join(sorted(EXTENSIONS))
