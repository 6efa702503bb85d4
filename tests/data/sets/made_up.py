"""Small data sets in the formats of the real ones.

Each function writes one below a folder of data sets, in the place where torchvision looks for it,
and says what should be read. Every picture has a colour of its own, which squashing leaves alone.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy.io import savemat

from dsf.data.sets.imagenette import CLASSES as IMAGENETTE_CLASSES
from dsf.data.sets.wordnet import imagenet_classes

Colour = tuple[int, int, int]


class Expected(NamedTuple):
    """The folder of the data set, its classes, and each split's (label, colour) in order."""

    folder: Path
    classes: Sequence[str]
    splits: dict[str, list[tuple[int | None, Colour]]]


class Painter:
    """Writes pictures, each with a colour of its own."""

    def __init__(self):
        self.count = 0

    def colour(self) -> Colour:
        self.count += 1
        return (self.count % 251, self.count // 251, 17)

    def write(self, path: Path) -> Colour:
        path.parent.mkdir(parents=True, exist_ok=True)
        colour = self.colour()
        Image.new("RGB", (7, 5), colour).save(path, "PNG")  # whatever its name: lossless
        return colour


def pets(root: Path) -> Expected:
    folder, painter = root / "oxford-iiit-pet", Painter()
    (folder / "annotations").mkdir(parents=True)
    breeds = {"Abyssinian": (1, 1), "american_bulldog": (2, 2), "Egyptian_Mau": (3, 1)}
    splits = {}
    for split, file in (("train", "trainval"), ("test", "test")):
        lines, splits[split] = [], []
        for breed, (number, species) in breeds.items():
            for index in range(3 if split == "train" else 2):
                image = f"{breed}_{split == 'test':d}{index}"
                lines.append(f"{image} {number} {species} 1")
                splits[split].append(
                    (number - 1, painter.write(folder / "images" / f"{image}.jpg"))
                )
        (folder / "annotations" / f"{file}.txt").write_text("\n".join(lines) + "\n")
    return Expected(folder, ["Abyssinian", "American Bulldog", "Egyptian Mau"], splits)


def aircraft(root: Path) -> Expected:
    folder, painter = root / "fgvc-aircraft-2013b", Painter()
    variants = ["Model B200", "707-320", "A300B4"]  # the official order is not the alphabet's
    splits, number = {}, 100
    (folder / "data").mkdir(parents=True)
    (folder / "data/variants.txt").write_text("\n".join(variants) + "\n")
    for split, file in (("train", "train"), ("validation", "val"), ("test", "test")):
        lines, splits[split] = [], []
        for label in (2, 0, 1, 1):
            number += 1
            lines.append(f"{number:07d} {variants[label]}")
            colour = painter.write(folder / "data/images" / f"{number:07d}.jpg")
            splits[split].append((label, colour))
        (folder / f"data/images_variant_{file}.txt").write_text("\n".join(lines) + "\n")
    return Expected(folder, variants, splits)


def dtd(root: Path) -> Expected:
    folder, painter = root / "dtd" / "dtd", Painter()
    (folder / "labels").mkdir(parents=True)
    classes = ["banded", "blotchy", "zigzagged"]
    splits = {}
    for split, file in (("train", "train"), ("validation", "val"), ("test", "test")):
        lines, splits[split] = [], []
        for label, name in enumerate(classes):
            for number in range(2):
                line = f"{name}/{name}_{split}_{number}.jpg"
                lines.append(line)
                splits[split].append((label, painter.write(folder / "images" / line)))
        (folder / f"labels/{file}1.txt").write_text("\n".join(lines) + "\n")
        (folder / f"labels/{file}2.txt").write_text("another/division.jpg\n")
    return Expected(folder, classes, splits)


def food101(root: Path) -> Expected:
    folder, painter = root / "food-101", Painter()
    (folder / "meta").mkdir(parents=True)
    classes = ["apple_pie", "baklava", "waffles"]
    splits = {}
    for split in ("train", "test"):
        lists, splits[split] = {}, []
        for label, name in enumerate(classes):
            lists[name] = [f"{name}/{split == 'test':d}{number}" for number in range(2)]
            for image in lists[name]:
                colour = painter.write(folder / "images" / f"{image}.jpg")
                splits[split].append((label, colour))
        (folder / f"meta/{split}.json").write_text(json.dumps(lists))
    return Expected(folder, classes, splits)


def flowers102(root: Path) -> Expected:
    from torchvision.datasets import Flowers102

    folder, painter = root / "flowers-102", Painter()
    labels = np.array([[102, 7, 1, 1, 50, 7, 2]], dtype=np.uint8)
    numbers = {"trnid": [5, 1], "valid": [7, 2], "tstid": [6, 3, 4]}
    colours = [painter.write(folder / f"jpg/image_{n:05d}.jpg") for n in range(1, 8)]
    savemat(folder / "imagelabels.mat", {"labels": labels}, do_compression=True)
    savemat(folder / "setid.mat", {key: np.array([value]) for key, value in numbers.items()})
    splits = {
        split: [(int(labels[0, n - 1]) - 1, colours[n - 1]) for n in numbers[key]]
        for split, key in (("train", "trnid"), ("validation", "valid"), ("test", "tstid"))
    }
    return Expected(folder, Flowers102.classes, splits)


def caltech101(root: Path) -> Expected:
    folder, painter = root / "caltech101", Painter()
    classes = {"Faces": 33, "accordion": 31}  # capitals come first
    colours = [
        [
            painter.write(folder / f"101_ObjectCategories/{name}/image_{n:04d}.jpg")
            for n in range(1, count + 1)
        ]
        for name, count in classes.items()
    ]
    painter.write(folder / "101_ObjectCategories/BACKGROUND_Google/image_0001.jpg")
    (folder / "101_ObjectCategories/BACKGROUND_Google/tmp").write_bytes(b"")
    # What seed 0 draws, written down: it must not change from one version to the next.
    test = {0: [1, 4, 26], 1: [10]}
    splits = {
        "train": [
            (label, colour)
            for label, some in enumerate(colours)
            for number, colour in enumerate(some)
            if number not in test[label]
        ],
        "test": [(label, colours[label][n]) for label, numbers in test.items() for n in numbers],
    }
    return Expected(folder, list(classes), splits)


def stl10(root: Path) -> Expected:
    folder, painter = root / "stl10_binary", Painter()
    folder.mkdir(parents=True)
    classes = ["airplane", "bird", "car"]
    (folder / "class_names.txt").write_text("\n".join(classes) + "\n")
    splits = {}
    for split, file, labels in (
        ("train", "train", [2, 0, 1]),
        ("test", "test", [1, 1]),
        ("unlabelled", "unlabeled", [None] * 4),
    ):
        colours = [painter.colour() for _ in labels]
        planes = np.array(colours, np.uint8)[:, :, None, None]
        (folder / f"{file}_X.bin").write_bytes(np.tile(planes, (1, 1, 96, 96)).tobytes())
        if None not in labels:
            (folder / f"{file}_y.bin").write_bytes(bytes(label + 1 for label in labels))
        splits[split] = list(zip(labels, colours))
    return Expected(folder, classes, splits)


def imagenette(root: Path) -> Expected:
    folder, painter = root / "imagenette2", Painter()
    splits = _class_folders(folder, IMAGENETTE_CLASSES, painter, 2)
    classes = ["tench", "English springer", "cassette player", "chain saw", "church"]
    classes += ["French horn", "garbage truck", "gas pump", "golf ball", "parachute"]
    return Expected(folder, classes, splits)


def tiny_imagenet(root: Path) -> Expected:
    folder, painter = root / "tiny-imagenet-200", Painter()
    wnids = ["n02124075", "n01443537", "n04067472"]  # as in the real file, in no order
    train = []
    for label, wnid in enumerate(sorted(wnids)):
        for number in range(2):
            file = folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG"
            train.append((label, painter.write(file)))
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
    lines, test = [], []
    for number, label in enumerate((2, 0, 1)):
        colour = painter.write(folder / f"val/images/val_{number}.JPEG")
        test.append((label, colour))
        lines.append(f"val_{number}.JPEG\t{sorted(wnids)[label]}\t0\t32\t44\t62")
    (folder / "val/val_annotations.txt").write_text("\n".join(lines) + "\n")
    (folder / "wnids.txt").write_text("\n".join(wnids))
    return Expected(folder, ["goldfish", "Egyptian cat", "reel"], {"train": train, "test": test})


def imagenet(root: Path) -> Expected:
    folder = root / "imagenet"
    splits = _class_folders(folder, imagenet_classes(), Painter(), 1)
    ends = ["tench", "goldfish"], ["ear", "toilet tissue"]
    return Expected(folder, [*ends[0], *[""] * 996, *ends[1]], splits)


def _class_folders(folder, wnids, painter, count):
    return {
        split: [
            (label, painter.write(folder / name / wnid / f"{number}.JPEG"))
            for label, wnid in enumerate(wnids)
            for number in range(count)
        ]
        for split, name in (("train", "train"), ("test", "val"))
    }


ALL = {
    "aircraft": aircraft,
    "caltech101": caltech101,
    "dtd": dtd,
    "flowers102": flowers102,
    "food101": food101,
    "imagenet": imagenet,
    "imagenette": imagenette,
    "pets": pets,
    "stl10": stl10,
    "tiny-imagenet": tiny_imagenet,
}
