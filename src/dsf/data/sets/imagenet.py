"""ImageNet (ILSVRC 2012), and the hundred classes of it that Tian et al. (2020) chose."""

from functools import partial
from importlib import resources

from dsf.data.pictures import PictureSource
from dsf.data.sets.unpacked import Unpacked
from dsf.data.sets.wordnet import class_folders, imagenet_classes, readable
from dsf.data.source import DataSet, Request, Source

_HOME = "https://image-net.org/challenges/LSVRC/2012/"
_ADVICE = f"get it from {_HOME}, and let torchvision.datasets.ImageNet sort it into train and val"
_FOLDERS = ("imagenet", "ILSVRC2012")
_PARTS = ("train", "val")
_IMAGENET = Unpacked("imagenet", _FOLDERS, _PARTS, advice=_ADVICE)
_IMAGENET100 = Unpacked("imagenet100", ("imagenet100", *_FOLDERS), _PARTS, advice=_ADVICE)
_CITATION = "Russakovsky et al.: ImageNet large scale visual recognition challenge. IJCV 2015"


def imagenet100_classes() -> list[str]:
    """The WordNet numbers of the hundred classes, in ImageNet's order."""
    text = (resources.files("dsf.data.sets") / "imagenet100.txt").read_text(encoding="ascii")
    return sorted(text.split())


def open_source(layout: Unpacked, hundred: bool, request: Request) -> Source:
    """Open a folder for each class, as torchvision sorts them; ``val`` is for testing."""
    folder = layout.locate(request)
    everything = imagenet_classes()
    classes = imagenet100_classes() if hundred else everything
    items = {
        split: class_folders(folder / name, classes, others=everything)
        for split, name in (("train", "train"), ("test", "val"))
    }
    return PictureSource(folder, request.size, readable(classes), items)


IMAGENET = DataSet(
    "imagenet",
    "1,331,167 photographs in 1,000 classes (Russakovsky et al., 2015)",
    partial(open_source, _IMAGENET, False),
    224,
    resizable=True,
    splits={"train": 1281167, "test": 50000},
    citation=_CITATION,
    home=_HOME,
)
IMAGENET100 = DataSet(
    "imagenet100",
    "131,689 photographs in a hundred classes of ImageNet (Tian et al., 2020)",
    partial(open_source, _IMAGENET100, True),
    224,
    resizable=True,
    splits={"train": 126689, "test": 5000},
    citation=f"{_CITATION}; classes of Tian, Krishnan, Isola: Contrastive multiview coding. "
    "ECCV 2020",
    home=_HOME,
)
