"""Oxford-IIIT Pets: 37 breeds of cats and dogs."""

from dsf.data.pictures import Item, PictureSource
from dsf.data.sets.unpacked import Unpacked, table
from dsf.data.source import DataSet, Request, Source

_LISTS = {"train": "annotations/trainval.txt", "test": "annotations/test.txt"}
_LAYOUT = Unpacked(
    "pets", ("oxford-iiit-pet",), ("images", *_LISTS.values()), torchvision="OxfordIIITPet"
)


def open_source(request: Request) -> Source:
    """Open the official lists: a breed is the number in the second column, from 1."""
    folder = _LAYOUT.locate(request)
    breeds: dict[int, str] = {}
    items: dict[str, list[Item]] = {}
    for split, file in _LISTS.items():
        items[split] = []
        for image, number, _, _ in table(folder / file, 4):
            if not number.isdecimal() or number == "0":
                raise ValueError(
                    f"{folder / file}: the class of {image} must be >= 1; got {number}"
                )
            breed = " ".join(word.capitalize() for word in image.split("_")[:-1])
            if breeds.setdefault(int(number), breed) != breed:
                raise ValueError(
                    f"{folder / file}: class {number} is {breeds[int(number)]}; got {image}"
                )
            items[split].append(Item(folder / "images" / f"{image}.jpg", int(number) - 1))
    if sorted(breeds) != list(range(1, len(breeds) + 1)):
        raise ValueError(f"{folder}: the classes must be 1 to {len(breeds)}; got {sorted(breeds)}")
    return PictureSource(folder, request.size, [breeds[n] for n in sorted(breeds)], items)


PETS = DataSet(
    "pets",
    "7,349 photographs of 37 breeds of cats and dogs (Parkhi et al., 2012)",
    open_source,
    224,
    resizable=True,
    splits={"train": 3680, "test": 3669},
    metric="mean per class",
    citation="Parkhi, Vedaldi, Zisserman, Jawahar: Cats and dogs. CVPR 2012",
    home="https://www.robots.ox.ac.uk/~vgg/data/pets/",
)
