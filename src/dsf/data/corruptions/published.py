"""The published files: CIFAR-10-C's arrays and ImageNet-C's folders."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsf.data.corruptions.apply import check_name, check_severity
from dsf.data.corruptions.constants import SEVERITIES
from dsf.data.images import UnreadableImageError, read_square
from dsf.data.pictures import cores, pictures, subfolders
from dsf.data.sets.numbers import folders_of_classes

_LABELS = "labels.npy"


@dataclass(frozen=True)
class Published:
    """Corrupted images of one type and severity, read when asked for.

    Args:
        labels: (N,) int64.
        read: from start to stop, the images (stop - start, 3, H, W) in uint8.
        origin: the file or folder.
    """

    labels: Tensor
    read: Callable[[int, int], Tensor]
    origin: Path

    def __len__(self) -> int:
        return len(self.labels)


def load_published(
    folder: Path | str,
    name: str,
    severity: int,
    classes: Sequence[str] | None = None,
    size: int = 224,
) -> Published:
    """The published images of one type and severity.

    Two layouts, told apart by what there is: CIFAR-10-C's (and CIFAR-100-C's) ``NAME.npy`` and
    ``labels.npy`` hold the test set five times, severity after severity; ImageNet-C has a file an
    image, ``NAME/SEVERITY/CLASS/*.JPEG``, perhaps one folder further down, as in
    ``noise/NAME/...``. Arrays are memory-mapped and never unpickled.

    Args:
        folder: with the files.
        name: of the type, one of ``CORRUPTIONS`` or ``EXTRA``.
        severity: 1 to 5.
        classes: the classes of ImageNet-C in the order of the labels, some or all, by the names of
            their folders or by the words for them; by default all there are, sorted.
        size: the side to which ImageNet-C's images are resized if they have another.

    Raises:
        FileNotFoundError: names what is missing.
        ValueError: for files that are not what they should be.
    """
    place = find_published(folder, name, severity)
    if place.suffix == ".npy":
        return _arrays(place, severity)
    return _pictures(place, classes, size)


def find_published(folder: Path | str, name: str, severity: int) -> Path:
    """The array, or the folder of classes, where a type and severity lie."""
    check_name(name)
    check_severity(severity)
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"folder {folder} of published corruptions does not exist")
    array = folder / f"{name}.npy"
    if array.is_file():
        if not (folder / _LABELS).is_file():
            raise FileNotFoundError(f"{folder} has {array.name} but lacks its labels, {_LABELS}")
        return array
    for place in (folder / name, *sorted(folder.glob(f"*/{name}"))):
        if place.is_dir():
            if not (place / str(severity)).is_dir():
                raise FileNotFoundError(f"{place} has no severity {severity}")
            return place / str(severity)
    raise FileNotFoundError(
        f"{folder} lacks {name}: neither {name}.npy (CIFAR-10-C) nor {name}/{severity}/CLASS/ "
        "(ImageNet-C) is there"
    )


def class_folders(folder: Path, classes: Sequence[str] | None) -> list[Path]:
    """The folder of each class, of a type and severity of ImageNet-C."""
    there = [place.name for place in subfolders(folder)]
    if not there:
        raise FileNotFoundError(f"{folder} has no class folders")
    names = there if classes is None else folders_of_classes(classes, there)
    missing = [name for name in names if name not in there]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {len(missing)} of {len(names)} classes, the first {missing[0]}"
        )
    return [folder / name for name in names]


def _arrays(path: Path, severity: int) -> Published:
    images, labels = _mapped(path), _mapped(path.parent / _LABELS)
    count = len(images) // len(SEVERITIES) if images.ndim else 0
    if images.shape[1:] != (32, 32, 3) or images.dtype != np.uint8 or count == 0:
        raise ValueError(
            f"{path} must hold uint8 of shape (50000, 32, 32, 3); "
            f"got {images.dtype} of shape {images.shape}"
        )
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{path.parent / _LABELS} must hold {len(images)} integers, one an image of "
            f"{path.name}; got {labels.dtype} of shape {labels.shape}"
        )
    if len(images) % len(SEVERITIES):
        raise ValueError(
            f"{path} must hold as many images for each of {len(SEVERITIES)} severities; "
            f"got {len(images)}"
        )
    first = (severity - 1) * count

    def read(start: int, stop: int) -> Tensor:
        pixels = np.array(images[first + start : first + min(stop, count)])
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)

    mine = np.array(labels[first : first + count], dtype=np.int64)
    return Published(torch.from_numpy(mine), read, path)


def _mapped(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a whole array of numbers: {error}") from error
    return array


def _pictures(folder: Path, classes: Sequence[str] | None, size: int) -> Published:
    paths: list[Path] = []
    labels: list[int] = []
    for label, place in enumerate(class_folders(folder, classes)):
        found = pictures(place)
        if not found:
            raise FileNotFoundError(f"{place} has no images")
        paths += found
        labels += [label] * len(found)

    def read(start: int, stop: int) -> Tensor:
        with ThreadPoolExecutor(cores()) as pool:
            pixels = np.stack(list(pool.map(lambda path: _read(path, size), paths[start:stop])))
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)

    return Published(torch.tensor(labels), read, folder)


def _read(path: Path, size: int) -> NDArray[np.uint8]:
    try:
        return read_square(path, size)[0]
    except UnreadableImageError as error:
        raise ValueError(f"{path} {error}") from error
