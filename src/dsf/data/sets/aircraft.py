"""FGVC-Aircraft: 100 variants of aircraft."""

from dsf.data.pictures import Item, PictureSource
from dsf.data.sets.unpacked import Unpacked, class_number, table
from dsf.data.source import DataSet, Request, Source

_VARIANTS = "data/variants.txt"
_LISTS = {
    "train": "data/images_variant_train.txt",
    "validation": "data/images_variant_val.txt",
    "test": "data/images_variant_test.txt",
}
_LAYOUT = Unpacked(
    "aircraft",
    ("fgvc-aircraft-2013b",),
    ("data/images", _VARIANTS, *_LISTS.values()),
    torchvision="FGVCAircraft",
)


def open_source(request: Request) -> Source:
    """Open the official lists of variants."""
    folder = _LAYOUT.locate(request)
    variants = [name for (name,) in table(folder / _VARIANTS, 1)]
    numbers = {name: number for number, name in enumerate(variants)}
    items = {
        split: [
            Item(folder / f"data/images/{image}.jpg", class_number(name, numbers, folder / file))
            for image, name in table(folder / file, 2)
        ]
        for split, file in _LISTS.items()
    }
    return PictureSource(folder, request.size, variants, items)


AIRCRAFT = DataSet(
    "aircraft",
    "10,000 photographs of 100 variants of aircraft (Maji et al., 2013)",
    open_source,
    224,
    resizable=True,
    splits={"train": 3334, "validation": 3333, "test": 3333},
    metric="mean per class",
    citation="Maji, Rahtu, Kannala, Blaschko, Vedaldi: Fine-grained visual classification of "
    "aircraft, 2013",
    home="https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
)
