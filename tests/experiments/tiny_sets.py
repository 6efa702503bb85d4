"""Small data sets in the formats of the real ones, as stores that plans can be run on."""

import dataclasses

import miniature
import numpy as np
from made_up import ALL, Expected, Painter, _class_folders
from PIL import Image

from dsf.data import prepare, registry
from dsf.data.sets.imagenet import imagenet100_classes


def prepare_sets(folder, patch, sizes):
    """Write data sets below a folder, and make stores of them.

    Args:
        folder: an empty one; stores lie in it afterwards.
        patch: pytest's MonkeyPatch.
        sizes: of the stores, by the names of the data sets; None where they have their own.
    """
    patch.setenv("DSF_DATA", str(folder / "stores"))
    patch.setattr(Painter, "write", _paint)
    for name, size in sizes.items():
        small = SMALL.get(name) or registry.DATASETS[name]
        patch.setitem(registry.DATASETS, name, dataclasses.replace(small, splits={}))
        source = WRITERS[name](folder / "files").folder
        prepare(name, source=str(source), size=size)


def _paint(painter, path):
    """A picture that differs from all others, so that an encoder has something to tell apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    painter.count += 1
    pixels = np.random.default_rng(painter.count).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, "PNG")


def _imagenet100(root):
    """ImageNet itself, of which only the hundred classes are there."""
    folder = root / "imagenet"
    _class_folders(folder, imagenet100_classes(), Painter(), 2)
    return Expected(folder, [], {})


def _cifar10(root):
    files = miniature.cifar10_pickles(miniature.cifar_arrays())
    return Expected(miniature.write_folder(root / "cifar-10-batches-py", files), [], {})


def _cifar100(root):
    names = [f"class {number}" for number in range(100)]
    files = miniature.cifar100_pickles(miniature.cifar_arrays(100), names)
    return Expected(miniature.write_folder(root / "cifar-100-python", files), [], {})


SMALL = {"cifar10": miniature.CIFAR10, "cifar100": miniature.CIFAR100}
WRITERS = ALL | {"imagenet100": _imagenet100, "cifar10": _cifar10, "cifar100": _cifar100}
