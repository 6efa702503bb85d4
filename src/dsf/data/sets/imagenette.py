"""Imagenette: ten classes of ImageNet that are easily told apart."""

from dsf.data.pictures import PictureSource
from dsf.data.sets.unpacked import Unpacked
from dsf.data.sets.wordnet import class_folders, readable
from dsf.data.source import DataSet, Request, Source

CLASSES = (
    *("n01440764", "n02102040", "n02979186", "n03000684", "n03028079"),
    *("n03394916", "n03417042", "n03425413", "n03445777", "n03888257"),
)
_LAYOUT = Unpacked(
    "imagenette",
    ("imagenette2", "imagenette2-320", "imagenette2-160"),
    ("train", "val"),
    torchvision="Imagenette",
)


def open_source(request: Request) -> Source:
    """Open the folders of its second version; ``val`` is for testing."""
    folder = _LAYOUT.locate(request)
    items = {
        split: class_folders(folder / name, CLASSES)
        for split, name in (("train", "train"), ("test", "val"))
    }
    return PictureSource(folder, request.size, readable(CLASSES), items)


IMAGENETTE = DataSet(
    "imagenette",
    "13,394 photographs in 10 classes of ImageNet (Howard, 2019)",
    open_source,
    224,
    resizable=True,
    splits={"train": 9469, "test": 3925},
    citation="Howard: Imagenette, 2019",
    home="https://github.com/fastai/imagenette",
)
