"""Experiments: recipes, their settings, and the wiring of data, method, loop and evaluation."""

from dsf.experiments.recipe import describe, dump, load_recipe, make_settings, recipe_names
from dsf.experiments.settings import Settings

__all__ = ["Settings", "describe", "dump", "load_recipe", "make_settings", "recipe_names"]
