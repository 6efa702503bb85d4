"""Tiny ImageNet: 200 classes of ImageNet at 64 pixels."""

from dsf.data.pictures import Item, PictureSource
from dsf.data.sets.unpacked import Unpacked, class_number, table
from dsf.data.sets.wordnet import class_folders, readable
from dsf.data.source import DataSet, Request, Source

_HOME = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
_ANNOTATIONS = "val/val_annotations.txt"
_LAYOUT = Unpacked(
    "tiny-imagenet",
    ("tiny-imagenet-200",),
    ("wnids.txt", "train", "val/images", _ANNOTATIONS),
    advice=f"download {_HOME} and unpack it",
)


def open_source(request: Request) -> Source:
    """Open its folders; ``val`` is for testing, since nobody has the labels of ``test``.

    Classes are in the order of their WordNet numbers, as in ImageNet.
    """
    folder = _LAYOUT.locate(request)
    classes = sorted(name for (name,) in table(folder / "wnids.txt", 1))
    numbers = {name: number for number, name in enumerate(classes)}
    annotations = folder / _ANNOTATIONS
    items = {
        "train": class_folders(folder / "train", classes),
        "test": [
            Item(folder / "val/images" / image, class_number(name, numbers, annotations))
            for image, name, _ in table(annotations, 3)
        ],
    }
    return PictureSource(folder, request.size, readable(classes), items)


TINY_IMAGENET = DataSet(
    "tiny-imagenet",
    "110,000 photographs in 200 classes of ImageNet (Stanford CS231n, 2015)",
    open_source,
    64,
    resizable=True,
    splits={"train": 100000, "test": 10000},
    citation="Le, Yang: Tiny ImageNet visual recognition challenge, 2015",
    home=_HOME,
)
