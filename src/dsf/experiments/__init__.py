"""Experiments: recipes, their settings, and the wiring of data, method, loop and evaluation."""

from dsf.experiments.evaluate import evaluate, load_run
from dsf.experiments.recipe import describe, dump, load_recipe, make_settings, recipe_names
from dsf.experiments.run import train
from dsf.experiments.settings import Settings

__all__ = [
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
