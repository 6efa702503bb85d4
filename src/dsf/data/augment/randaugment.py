"""RandAugment (Cubuk et al., 2020): torchvision's operations, one a view."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from dsf.data.augment import levels
from dsf.data.augment.colour import brightness, contrast, saturation
from dsf.data.augment.fixed import FACTOR_BITS, as_float, fixed
from dsf.data.augment.geometry import affine_table, look_up
from dsf.data.augment.parameters import OPERATIONS
from dsf.data.augment.planes import Planes, Step, apply_one
from dsf.data.augment.recipe import Recipe

_PLACE = {name: place for place, name in enumerate(OPERATIONS)}
_BLENDS = ("Brightness", "Color", "Contrast", "Sharpness")


class RandAugment(nn.Module):
    """The operations at a recipe's magnitude, on views of ``size`` pixels."""

    matrices: Tensor
    factors: Tensor
    steps: Tensor
    thresholds: Tensor

    def __init__(self, recipe: Recipe, size: int) -> None:
        super().__init__()
        strength = recipe.magnitude / (recipe.magnitude_bins - 1)
        dropped = round(recipe.magnitude / ((recipe.magnitude_bins - 1) / 4))
        factors = [
            [fixed(1 + sign * 0.9 * strength * (name in _BLENDS), FACTOR_BITS) for sign in (1, -1)]
            for name in OPERATIONS
        ]
        steps = [2**dropped if name == "Posterize" else 1 for name in OPERATIONS]
        # Levels are integers: a threshold between two of them is as good as the next one.
        threshold = math.ceil(round(255 * (1 - strength), 6))
        thresholds = [threshold if name == "Solarize" else 256 for name in OPERATIONS]
        tables = {"factors": factors, "steps": steps, "thresholds": thresholds}
        for name, table in tables.items():
            self.register_buffer(name, torch.tensor(table), persistent=False)
        self.register_buffer("matrices", affine_table(recipe, size), persistent=False)

    def matrix(self, operation: Tensor, negative: Tensor) -> Tensor:
        """The affine map of each view's operation, (V, 6) int64; see ``geometry``."""
        return look_up(self.matrices, operation, negative)

    def colour(
        self, planes: Planes, operation: Tensor, negative: Tensor, positions: Tensor
    ) -> Planes:
        """Each view's operation, unless it moves pixels.

        ``positions`` is an int64 arange of the views' width.
        """
        factor = as_float(self.factors[operation, negative.to(torch.int64)], FACTOR_BITS)
        step = self.steps[operation].to(torch.float32)
        threshold = self.thresholds[operation].to(torch.float32)
        flatten = partial(levels.equalize, positions=positions)
        steps: dict[str, Step] = {
            "Contrast": (contrast, (factor,)),
            "AutoContrast": (levels.autocontrast, ()),
            "Brightness": (brightness, (factor,)),
            "Color": (saturation, (factor,)),
            "Posterize": (levels.posterize, (step,)),
            "Solarize": (levels.solarize, (threshold,)),
            "Sharpness": (levels.sharpness, (factor,)),
            "Equalize": (flatten, (operation == _PLACE["Equalize"],)),
        }
        numbered = {_PLACE[name]: steps[name] for name in steps}
        return apply_one(operation, numbered, planes)


def is_geometric(operation: Tensor) -> Tensor:
    """Which operations move pixels."""
    return (operation >= _PLACE["ShearX"]) & (operation <= _PLACE["Rotate"])
