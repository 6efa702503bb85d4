"""RandAugment (Cubuk et al., 2020): torchvision's operations, one a view."""

import math

import torch
from torch import Tensor, nn

from dsf.data.augment import levels
from dsf.data.augment.colour import average, blend, luma
from dsf.data.augment.fixed import FACTOR_BITS, Planes, as_float, choose, fixed, per_view
from dsf.data.augment.geometry import affine_table, look_up
from dsf.data.augment.parameters import OPERATIONS
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

    def is_geometric(self, operation: Tensor) -> Tensor:
        """Which operations move pixels."""
        return (operation >= _PLACE["ShearX"]) & (operation <= _PLACE["Rotate"])

    def colour(
        self, planes: Planes, operation: Tensor, negative: Tensor, positions: Tensor
    ) -> Planes:
        """Each view's operation, unless it moves pixels, on planes as in ``colour``."""
        factor = self.factors[operation, negative.to(torch.int64)]
        result = blend(planes, self._degenerate(planes, operation), as_float(factor, FACTOR_BITS))
        result = levels.posterize(result, self.steps[operation].to(torch.float32))
        result = levels.solarize(result, self.thresholds[operation].to(torch.float32))
        stretched = operation == _PLACE["AutoContrast"]
        result = choose(stretched, levels.autocontrast(planes), result)
        flattened = operation == _PLACE["Equalize"]
        return choose(flattened, levels.equalize(planes, flattened, positions), result)

    def _degenerate(self, planes: Planes, operation: Tensor) -> Planes:
        gray = luma(planes)
        origin = torch.where(per_view(operation == _PLACE["Color"]), gray, torch.zeros_like(gray))
        origin = torch.where(per_view(operation == _PLACE["Contrast"]), average(gray), origin)
        sharpened = operation == _PLACE["Sharpness"]
        return choose(sharpened, levels.smooth(planes), (origin, origin, origin))
