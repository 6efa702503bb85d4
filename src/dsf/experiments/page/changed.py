"""Results of a data set that changed: which of them are of other images."""

from collections.abc import Callable, Mapping
from typing import Any

from dsf.experiments.page.run import Run, as_mapping


def image_notes(
    results: Mapping[str, Any],
    learned: object,
    split: object = "train",
    named: Callable[[str], str] = str,
) -> list[str]:
    """A sentence on results that are of other images than a run learned from, and one on each
    split that was not the same for all others. Results on other data sets say so by their names.

    Args:
        results: of a run, by name.
        learned: the sha256 of the images that it learned from, where it is known.
        split: which of its data set's they were.
        named: what to call a result.

    Example:
        >>> def of(images):
        ...     return {"protocol": {"data": {"content": {"train": {"images": images}}}}}
        >>> image_notes({"knn": of("ab"), "linear": of("cd")}, learned="ab")
        ['Measured on other images than the run learned from, since they have changed: linear.']
    """
    hashes = {name: _hashes(entry) for name, entry in results.items() if _is_own(name)}
    notes = []
    other = [
        name
        for name, found in hashes.items()
        if isinstance(learned, str) and found.get(str(split), learned) != learned
    ]
    if other:
        notes.append(
            "Measured on other images than the run learned from, since they have changed: "
            f"{_listed(other, named)}."
        )
    groups: dict[str, dict[str, list[str]]] = {}  # names by split and hash
    for name, found in hashes.items():
        for part, digest in found.items() if name not in other else ():
            groups.setdefault(part, {}).setdefault(digest, []).append(name)
    for part, by_hash in groups.items():
        if len(by_hash) > 1:
            listed = (_listed(names, named) for names in by_hash.values())
            together = "; ".join(f"({number}) {names}" for number, names in enumerate(listed, 1))
            notes.append(
                f"The images of the split {part} changed between evaluations, "
                f"so that these groups are of different ones: {together}."
            )
    return notes


def run_image_notes(run: Run, results: Mapping[str, Any], named: Callable[[str], str]) -> list[str]:
    """``image_notes`` on some of a run's results."""
    split = as_mapping(run.config.get("data")).get("split", "train")
    return image_notes(results, run.environment.get("images_sha256"), split, named)


def _is_own(name: str) -> bool:
    """Whether a result is of the run's own data set."""
    return "@" not in name.split(" ")[0]


def _hashes(entry: object) -> dict[str, str]:
    """The sha256 of the images of each split that a result is of."""
    data = as_mapping(as_mapping(as_mapping(entry).get("protocol")).get("data"))
    found = {
        split: as_mapping(of_split).get("images")
        for split, of_split in as_mapping(data.get("content")).items()
    }
    return {split: digest for split, digest in found.items() if isinstance(digest, str)}


def _listed(names: list[str], named: Callable[[str], str]) -> str:
    return "; ".join(dict.fromkeys(map(named, names)))
