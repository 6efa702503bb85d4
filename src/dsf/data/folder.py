"""Any folder of images: a folder per class, or flat and without labels."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dsf.data.images import EXTENSIONS
from dsf.data.nearby import nearest
from dsf.data.pictures import Item, PictureSource, pictures, pictures_below, subfolders
from dsf.data.source import DataSet, Request, Source

DEFAULT_SIZE = 256
PREFIX = "folder:"
_SPLITS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_SPLIT_OF = {name: split for split, names in _SPLITS.items() for name in names}


class FolderSource(PictureSource):
    """The images below a folder, in the order of their names.

    ``PATH/CLASS/...`` or ``PATH/*`` make the split ``train``; with ``PATH/train`` and perhaps
    ``PATH/val`` and ``PATH/test`` and no other folders, each of these is a split, ``val`` that of
    ``validation`` or, where there is no ``PATH/test``, of ``test``. Their names may be written in
    capitals, and as training; valid, validation or dev; testing.

    Args:
        path: the folder.
        size: the side of the squares.
    """

    def __init__(self, path: Path, size: int) -> None:
        folders = _split_folders(path)
        names = {split: _class_names(folder) for split, folder in folders.items()}
        classes = sorted(set().union(*names.values()))
        unlabelled = [split for split, found in names.items() if not found]
        if classes and unlabelled:
            raise ValueError(
                f"{path}: all splits must have class folders or none; {unlabelled[0]} has none"
            )
        numbers = {name: number for number, name in enumerate(classes)}
        items = {split: list(_items(folder, numbers)) for split, folder in folders.items()}
        for split, files in items.items():
            if not files:
                raise ValueError(f"{folders[split]} has no images ({_extensions()})")
        self.ignored = _ignored(path)
        # Folders may be named by any bytes; classes stand in pages and figures, which are text.
        shown = [os.fsencode(name).decode(errors="backslashreplace") for name in classes]
        super().__init__(path, size, shown, items, f"{PREFIX}{path}")


def folder_path(name: str) -> Path:
    """The folder that ``folder:PATH`` names, whether it is there or not."""
    path = name.removeprefix(PREFIX)
    if not path:
        raise ValueError(
            f"{PREFIX}PATH names a folder of images, {PREFIX}. the current one; got no path"
        )
    return Path(path).expanduser().absolute()


def missing(name: str) -> str:
    """What to say of ``folder:PATH`` whose folder is not there."""
    path = folder_path(name)
    if path.exists():
        return f"{name}: {path} is not a folder"
    near = nearest(path, lambda other: other.is_dir() and not other.name.startswith("."))
    typed = Path(name.removeprefix(PREFIX))
    hint = f": did you mean {PREFIX}{typed.with_name(near.name)}?" if near is not None else ""
    if not hint and not typed.expanduser().is_absolute():
        hint = ". A relative path is one from here: a run with one goes on where it was started"
    return f"{name}: there is no folder {path}{hint}"


def folder_data_set(name: str) -> DataSet:
    """The data set that ``folder:PATH`` names; its stores are named after folder and path."""
    path = folder_path(name)
    mark = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in path.name) or "root"

    def open_source(request: Request) -> Source:
        if request.source is not None:
            raise ValueError(
                f"source: {name} says itself where the images are; got {request.source!r}"
            )
        if not path.is_dir():
            raise FileNotFoundError(missing(name))
        return FolderSource(path, request.size)

    return DataSet(
        f"folder-{readable}-{mark}",
        f"images below {path}",
        open_source,
        DEFAULT_SIZE,
        resizable=True,
        fixed=False,
    )


def _split_folders(path: Path) -> dict[str, Path]:
    found: dict[str, list[Path]] = {}
    others: list[Path] = []
    for folder in subfolders(path):
        split = _SPLIT_OF.get(folder.name.lower())
        (others if split is None else found.setdefault(split, [])).append(folder)
    if "train" not in found or pictures(path) or (others and len(found) == 1):
        return {"train": path}  # all of them are classes, whatever their names
    if others:
        splits = " and ".join(f"{folder.name}/" for folders in found.values() for folder in folders)
        raise ValueError(
            f"{path} must hold splits or class folders; it has both: {splits} are splits, "
            f"{others[0].name}/ is none"
        )
    for split, folders in found.items():
        if len(folders) > 1:
            names = " and ".join(f"{folder.name}/" for folder in folders)
            raise ValueError(f"{path}: {names} are the same split, {split}; leave one")
    chosen = {split: found[split][0] for split in _SPLITS if split in found}
    if "test" not in chosen and "validation" in chosen:
        chosen["test"] = chosen.pop("validation")  # as ImageNet is laid out, and those like it
    return chosen


def _class_names(folder: Path) -> list[str]:
    classes = [sub.name for sub in subfolders(folder)]
    if classes and (images := pictures(folder)):
        raise ValueError(
            f"{folder} must hold images or class folders; it has both: "
            f"{images[0].name} and {classes[0]}/"
        )
    return classes


def _items(folder: Path, numbers: dict[str, int]) -> Iterator[Item]:
    classes = subfolders(folder)
    if not classes:
        yield from (Item(path, -1) for path in pictures(folder))
    for sub in classes:
        for path in pictures_below(sub):
            yield Item(path, numbers[sub.name])


def _ignored(folder: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        suffixes = (Path(where, name).suffix.lower() for name in names if name[0] != ".")
        counts.update(suffix for suffix in suffixes if suffix not in EXTENSIONS)
    return dict(sorted(counts.items()))


def _extensions() -> str:
    return ", ".join(sorted(EXTENSIONS))
