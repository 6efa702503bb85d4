"""The store: a data set decoded once, as .npy files of uint8 and a manifest.

```
cifar10/
  manifest.json       format, source, sizes, class names, checksums, what was left out
  train-00000.npy ... images, (n, H, W, 3) uint8
  train-labels.npy    (N,) int64, where there are labels
  train-sizes.npy     (N, 2) int64, original height and width, where images were squashed
```
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsf import files
from dsf.data.rows import ShardFile
from dsf.data.source import Advance, Content, LeftOut
from dsf.data.split import Split

FORMAT = 1
MANIFEST = "manifest.json"


class Store:
    """An open store.

    Opening reads the manifest and compares the sizes of the files with it; a damaged byte is found
    only by reading everything, which ``verify`` asks for.

    Args:
        path: its folder.
        verify: compare all checksums too.
    """

    def __init__(self, path: Path | str, verify: bool = False) -> None:
        self.path = Path(path)
        self.manifest = _read_manifest(self.path)
        for entry in _entries(self.manifest):
            file = self.path / entry["file"]
            have = file.stat().st_size if file.is_file() else None
            if have != entry["bytes"]:
                what = "is missing" if have is None else f"has {have:,} bytes"
                raise ValueError(f"{file} {what}; the store's manifest says {entry['bytes']:,}")
        if verify:
            self.verify()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {split}" for split, count in self.counts.items())
        return f"Store({str(self.path)!r}: {counts})"

    @property
    def name(self) -> str:
        """The data set."""
        return str(self.manifest["name"])

    @property
    def image_size(self) -> int:
        """The side of the square images."""
        return int(self.manifest["image_size"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; empty without labels."""
        return tuple(self.manifest["classes"])

    @property
    def counts(self) -> dict[str, int]:
        """The number of images in each split."""
        return {split: entry["count"] for split, entry in self.manifest["splits"].items()}

    @property
    def content(self) -> dict[str, Content]:
        """The hashes of the decoded arrays."""
        splits = self.manifest["splits"].items()
        return {split: Content(*(entry["content"][f] for f in _PARTS)) for split, entry in splits}

    @property
    def left_out(self) -> list[LeftOut]:
        """The images that could not be read."""
        return [LeftOut(**entry) for entry in self.manifest["left_out"]]

    @property
    def ignored(self) -> dict[str, int]:
        """How many files were not taken for images, by their extension."""
        return dict(self.manifest["ignored"])

    @property
    def note(self) -> str:
        """How the splits were made, where there was a choice."""
        return str(self.manifest.get("note", ""))

    def split(self, name: str) -> Split:
        """One split, its images where they lie."""
        entry = self.manifest["splits"].get(name)
        if entry is None:
            raise ValueError(f"split must be one of {tuple(self.counts)}; got {name!r}")
        shape = (self.image_size, self.image_size, 3)
        shards = [self._shard(shard["file"], (shard["count"], *shape)) for shard in entry["shards"]]
        count, labels, sizes = entry["count"], entry["labels"], entry["sizes"]
        return Split(
            name,
            shards,
            self._load(labels["file"], np.int64, (count,)) if labels else None,
            self._load(sizes["file"], np.int64, (count, 2)) if sizes else None,
            self.classes,
            self.content[name].images,
        )

    def verify(self, advance: Advance = lambda count: None) -> None:
        """Read everything and raise ``ValueError`` where a checksum differs.

        ``advance`` is called with each number of images read.
        """
        for split, entry in self.manifest["splits"].items():
            content = hashlib.sha256()
            for shard in entry["shards"]:
                data = (self.path / shard["file"]).read_bytes()
                self._compare(shard["file"], hashlib.sha256(data).hexdigest(), shard["sha256"])
                content.update(memoryview(data)[shard["header"] :])
                advance(shard["count"])
            self._compare(f"split {split}", content.hexdigest(), entry["content"]["images"])
            for extra in filter(None, (entry["labels"], entry["sizes"])):
                self._compare(
                    extra["file"], files.sha256(self.path / extra["file"]), extra["sha256"]
                )

    def _compare(self, what: str, have: str, expected: str) -> None:
        if have != expected:
            raise ValueError(
                f"{self.path}: {what} is damaged: sha256 {have}, the manifest says {expected}"
            )

    def _shard(self, file: str, shape: tuple[int, ...]) -> ShardFile:
        header = self._load(file, np.uint8, shape, mapped=True)
        assert isinstance(header, np.memmap)
        return ShardFile(self.path / file, header.offset, shape)

    def _load(
        self, file: str, dtype: type, shape: tuple[int, ...], mapped: bool = False
    ) -> NDArray[Any]:
        path = self.path / file
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(
                f"{path} holds {array.dtype} {array.shape}; "
                f"the manifest says {np.dtype(dtype)} {shape}"
            )
        return array


_PARTS = Content._fields
_KEYS = {"name", "source", "fingerprint", "image_size", "classes", "left_out", "ignored"}


def _entries(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    result = []
    for split in manifest["splits"].values():
        result += [*split["shards"], *filter(None, (split["labels"], split["sizes"]))]
    return result


def is_store(folder: Path) -> bool:
    """Whether a folder is a store, of whatever format and however damaged."""
    try:
        return files.read_json(folder / MANIFEST).keys() >= {"format", "fingerprint"}
    except (OSError, ValueError):
        return False


def file_names(manifest: dict[str, Any]) -> set[str]:
    """The files that belong to a store."""
    return {MANIFEST, *(entry["file"] for entry in _entries(manifest))}


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a store: it has no {MANIFEST}")
    manifest = files.read_json(path)
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format must be {FORMAT}; got {manifest.get('format')!r}. "
            "It was made by another version of dsf"
        )
    try:
        names = file_names(manifest)
        counts = [
            (split["count"], sum(shard["count"] for shard in split["shards"]))
            for split in manifest["splits"].values()
        ]
        complete = counts and all(count == total > 0 for count, total in counts)
    except (KeyError, TypeError, AttributeError):
        complete, names = False, set()
    if not complete or not manifest.keys() >= _KEYS:
        raise ValueError(f"{path} is not a complete manifest")
    if outside := [name for name in names if Path(name).name != name]:
        raise ValueError(f"{path}: files must lie in the store's folder; got {outside[0]!r}")
    return manifest
