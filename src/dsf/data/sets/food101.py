"""Food-101: 101 dishes."""

from pathlib import Path

from dsf import files
from dsf.data.pictures import Item, PictureSource
from dsf.data.sets.unpacked import Unpacked
from dsf.data.source import DataSet, Request, Source

_LISTS = {"train": "meta/train.json", "test": "meta/test.json"}
_LAYOUT = Unpacked("food101", ("food-101",), ("images", *_LISTS.values()), torchvision="Food101")


def open_source(request: Request) -> Source:
    """Open the official lists: of each dish its images, as DISH/NUMBER."""
    folder = _LAYOUT.locate(request)
    lists = {split: _read(folder / file) for split, file in _LISTS.items()}
    classes = sorted(set().union(*lists.values()))
    items = {
        split: [
            Item(folder / "images" / f"{image}.jpg", number)
            for number, name in enumerate(classes)
            for image in dishes.get(name, ())
        ]
        for split, dishes in lists.items()
    }
    return PictureSource(folder, request.size, classes, items)


def _read(path: Path) -> dict[str, list[str]]:
    dishes = files.read_json(path)
    for name, images in dishes.items():
        if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
            raise ValueError(f"{path}: {name} must be a list of names")
    return dishes


FOOD101 = DataSet(
    "food101",
    "101,000 photographs of 101 dishes (Bossard et al., 2014)",
    open_source,
    224,
    resizable=True,
    splits={"train": 75750, "test": 25250},
    citation="Bossard, Guillaumin, Van Gool: Food-101, mining discriminative components with "
    "random forests. ECCV 2014",
    home="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
)
