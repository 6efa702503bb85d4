"""What a store holds, in a few words: the classes of each split, and what seems wrong with them."""

from typing import NamedTuple

from dsf.data.store import Store

_ALL = 8
_FIRST = 3


class Unlearned(NamedTuple):
    """A class of which there are no training images, but others."""

    split: str
    name: str
    images: int


def class_line(store: Store, split: str) -> str:
    """The classes of a split and how many images each has; only the first few of many."""
    counts = _counts(store, split)
    found = [(name, n) for name, n in zip(store.classes, counts, strict=False) if n]
    if not found:
        return "no labels"
    number = f"{len(found):,} class" + ("es" if len(found) > 1 else "")
    if len(found) <= _ALL:
        return f"{number}: " + ", ".join(f"{name} ({n:,})" for name, n in found)
    low, high = min(n for _, n in found), max(n for _, n in found)
    span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{number} of {span} each: {', '.join(name for name, _ in found[:_FIRST])}, ..."


def unlearned(store: Store) -> list[Unlearned]:
    """Classes of other splits without a training image, where training images have labels."""
    learned = _counts(store, "train") if "train" in store.counts else []
    return [
        Unlearned(split, store.classes[number], count)
        for split in (store.counts if learned else ())
        for number, count in enumerate(_counts(store, split))
        if count and not learned[number]
    ]


def _counts(store: Store, split: str) -> list[int]:
    """The images of each class, by its number, since names may repeat; empty without labels."""
    images = store.split(split)
    if not images.labelled:
        return []
    counts: list[int] = images.labels().bincount(minlength=len(store.classes)).tolist()
    return counts
