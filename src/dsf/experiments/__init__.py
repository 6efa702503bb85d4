"""Experiments: recipes, their settings, and the wiring of data, method, loop and evaluation."""

import importlib
from typing import TYPE_CHECKING, Any

from dsf.experiments.catalogue import describe, recipe_names

if TYPE_CHECKING:
    from dsf.experiments.evaluations import Choices, evaluate
    from dsf.experiments.recipe import dump, load_recipe, make_settings
    from dsf.experiments.run import train
    from dsf.experiments.settings import Settings
    from dsf.experiments.subjects import load_run

# Imported when asked for: a list of recipes need not wait for torch.
_MODULES = {
    "Choices": "evaluations",
    "evaluate": "evaluations",
    "load_run": "subjects",
    "dump": "recipe",
    "load_recipe": "recipe",
    "make_settings": "recipe",
    "train": "run",
    "Settings": "settings",
}

__all__ = [
    "Choices",
    "Settings",
    "describe",
    "dump",
    "evaluate",
    "load_recipe",
    "load_run",
    "make_settings",
    "recipe_names",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
