"""The Describable Textures Dataset: 47 kinds of textures."""

from dsf.data.pictures import Item, PictureSource
from dsf.data.sets.unpacked import Unpacked, table
from dsf.data.source import DataSet, Request, Source

# Of the ten official divisions the first, as everybody does who reports one number.
_DIVISION = 1
_LISTS = {
    "train": f"labels/train{_DIVISION}.txt",
    "validation": f"labels/val{_DIVISION}.txt",
    "test": f"labels/test{_DIVISION}.txt",
}
_LAYOUT = Unpacked("dtd", ("dtd/dtd", "dtd"), ("images", *_LISTS.values()), torchvision="DTD")


def open_source(request: Request) -> Source:
    """Open the official lists, whose lines are CLASS/FILE."""
    folder = _LAYOUT.locate(request)
    files = {split: [line for (line,) in table(folder / file, 1)] for split, file in _LISTS.items()}
    for split, lines in files.items():
        if wrong := [line for line in lines if line.count("/") != 1]:
            raise ValueError(f"{folder / _LISTS[split]}: must list CLASS/FILE; got {wrong[0]!r}")
    classes = sorted({line.split("/")[0] for lines in files.values() for line in lines})
    numbers = {name: number for number, name in enumerate(classes)}
    items = {
        split: [Item(folder / "images" / line, numbers[line.split("/")[0]]) for line in lines]
        for split, lines in files.items()
    }
    note = f"division {_DIVISION} of the official ten"
    return PictureSource(folder, request.size, classes, items, note=note)


DTD = DataSet(
    "dtd",
    "5,640 photographs of 47 kinds of textures (Cimpoi et al., 2014)",
    open_source,
    224,
    resizable=True,
    splits={"train": 1880, "validation": 1880, "test": 1880},
    citation="Cimpoi, Maji, Kokkinos, Mohamed, Vedaldi: Describing textures in the wild. CVPR 2014",
    home="https://www.robots.ox.ac.uk/~vgg/data/dtd/",
)
