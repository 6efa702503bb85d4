"""Parts of ImageNet: a folder of images for each class, named by its number in WordNet."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from dsf.data.pictures import Item, pictures_below, subfolders


def imagenet_classes() -> list[str]:
    """The WordNet numbers of ImageNet's 1,000 classes, in their order."""
    from timm.data.imagenet_info import ImageNetInfo

    return list(ImageNetInfo().label_names())


def readable(classes: Sequence[str]) -> list[str]:
    """A word for each class, and its number with it where two share the word."""
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo("imagenet-22k")
    try:
        words = [info.label_name_to_description(number).split(",")[0] for number in classes]
    except KeyError as error:
        raise ValueError(f"class must be a WordNet number of ImageNet; got {error}") from None
    shared = {word for word, count in Counter(words).items() if count > 1}
    return [
        f"{word} ({number})" if word in shared else word
        for word, number in zip(words, classes, strict=True)
    ]


def class_folders(folder: Path, classes: Sequence[str], others: Iterable[str] = ()) -> list[Item]:
    """The images of each class; the folders of ``others`` may be there too, and are passed over."""
    found = {sub.name: sub for sub in subfolders(folder)}
    if missing := [name for name in classes if name not in found]:
        raise ValueError(
            f"{folder} lacks {len(missing)} of {len(classes)} classes, the first is {missing[0]}; "
            "must have a folder for each"
        )
    if unknown := sorted(found.keys() - set(classes) - set(others)):
        raise ValueError(f"{folder} has a folder {unknown[0]!r}, which is none of its classes")
    return [
        Item(path, label)
        for label, name in enumerate(classes)
        for path in pictures_below(found[name])
    ]
