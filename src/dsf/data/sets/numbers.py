"""The WordNet numbers of classes that are known by their words."""

import re
from collections.abc import Collection, Iterator, Sequence

from dsf.data.sets.imagenet import imagenet100_classes
from dsf.data.sets.imagenette import CLASSES
from dsf.data.sets.wordnet import imagenet_classes, readable

_NUMBER = re.compile(r"n\d{8}")


def folders_of_classes(names: Sequence[str], there: Collection[str]) -> list[str]:
    """What the folders of classes are called: as the classes, or by their numbers in WordNet.

    Args:
        names: of all classes of a data set, in its order.
        there: the folders there are.
    """
    if not set(names) <= set(there):
        for numbers in _known(there):
            if len(numbers) == len(names) and readable(numbers) == list(names):
                return list(numbers)
    return list(names)


def _known(there: Collection[str]) -> Iterator[Sequence[str]]:
    """Lists of numbers that a data set may have for its classes."""
    yield CLASSES
    yield imagenet100_classes()
    yield imagenet_classes()
    if all(_NUMBER.fullmatch(name) for name in there):
        yield sorted(there)  # of Tiny ImageNet
