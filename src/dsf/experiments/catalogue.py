"""The recipes of the package by name, and what their first lines say."""

from importlib.resources import files
from typing import NamedTuple

_FOLDER = files("dsf.experiments").joinpath("recipes")
_SUFFIX = ".yaml"


class Description(NamedTuple):
    """What the head of a recipe says."""

    name: str
    command: str
    reaches: str
    hardware: str


def recipe_names() -> list[str]:
    """The recipes of the package."""
    names = [file.name for file in _FOLDER.iterdir() if file.name.endswith(_SUFFIX)]
    return sorted(name.removesuffix(_SUFFIX) for name in names)


def recipe_text(name: str) -> str:
    """A recipe's YAML."""
    return _FOLDER.joinpath(name + _SUFFIX).read_text()


def describe(name: str) -> Description:
    """The first lines of a recipe: its command, what it reaches, on what."""
    command, *others = [
        line.removeprefix("#").strip() for line in recipe_text(name).splitlines()[:3]
    ]
    reaches, hardware = (line.partition(": ")[2] for line in others)
    return Description(name, command, reaches, hardware)
