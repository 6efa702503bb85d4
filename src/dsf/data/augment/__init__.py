"""Views of images: torchvision's augmentations, batched, on any device, reproducible to the bit."""

from dsf.data.augment.multicrop import MultiCrop
from dsf.data.augment.parameters import OPERATIONS, Draw, Parameters
from dsf.data.augment.recipe import RECIPES, Recipe
from dsf.data.augment.views import TwoSides, Views

__all__ = [
    "OPERATIONS",
    "RECIPES",
    "Draw",
    "MultiCrop",
    "Parameters",
    "Recipe",
    "TwoSides",
    "Views",
]
