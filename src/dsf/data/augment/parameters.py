"""The random parameters of views: integers and dyadic fractions, so that all devices agree."""

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dsf.data.augment.fixed import FACTOR_BITS, as_float, fixed
from dsf.data.augment.recipe import Range, Recipe
from dsf.random import philox

OPERATIONS = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
)
"""RandAugment's operations; parameters name them by their place here."""

_ATTEMPTS = 10
_RATIO_BITS = 12
_AREA_BITS = 16


class Parameters(NamedTuple):
    """All that is random in V views; what was not drawn is neutral.

    Attributes:
        top: (V,) int64, the crop in pixels of the original image; so are the next three.
        left: see ``top``.
        height: see ``top``.
        width: see ``top``.
        flip: (V,) bool.
        operations: (V, n) int64, places in ``OPERATIONS``; Identity where RandAugment is left out.
        negative: (V, n) bool, whether the magnitude is taken with a minus sign.
        jitter: (V,) bool.
        order: (V, 4) int64, the order of brightness 0, contrast 1, saturation 2, hue 3.
        factors: (V, 3) float32 of brightness, contrast and saturation; 1 without jitter.
        hue: (V,) int64, the shift in levels of 256.
        grayscale: (V,) bool.
        radius: (V,) float32 of the blur; 0 without.
        solarize: (V,) bool.
    """

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    operations: Tensor
    negative: Tensor
    jitter: Tensor
    order: Tensor
    factors: Tensor
    hue: Tensor
    grayscale: Tensor
    radius: Tensor
    solarize: Tensor


class Draw(nn.Module):
    """Draw the parameters of views as a pure function of (seed, epoch, sample, view)."""

    blocks: Tensor
    ratios: Tensor
    orders: Tensor

    def __init__(self, recipe: Recipe, seed: int) -> None:
        super().__init__()
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must be in [0, 2^64); got {seed}")
        self.recipe, self.seed = recipe, seed
        blocks = torch.arange(9 + (recipe.operations + 1) // 2)
        self.register_buffer("blocks", blocks, persistent=False)
        self.register_buffer("ratios", _log_uniform(recipe.crop_ratio), persistent=False)
        orders = torch.tensor(list(itertools.permutations(range(4))))
        self.register_buffer("orders", orders, persistent=False)

    def forward(
        self, samples: Tensor, epoch: Tensor, view_ids: Tensor, sizes: Tensor
    ) -> Parameters:
        """The parameters of B M views, those of one image side by side.

        ``samples`` is (B,), ``epoch`` without dimensions, ``view_ids`` (M,), ``sizes`` (B, 2), the
        height and width of the original images; all int64.
        """
        counter = (self.blocks, view_ids[:, None], samples[:, None, None], epoch)
        words = philox(self.seed, counter).flatten(0, 1)  # (V, blocks, 4)
        tries, rest = words[:, :5].reshape(-1, _ATTEMPTS, 2), words[:, 5:]
        sizes = sizes[:, None].expand(-1, view_ids.shape[0], -1).flatten(0, 1)
        tallest, widest = sizes.unbind(-1)
        height, width, found = self._crop_shape(tries, tallest, widest)

        recipe = self.recipe
        place_y, place_x, flip, gray = rest[:, 0].unbind(-1)
        jitter, order, blur, radius = rest[:, 2].unbind(-1)
        randaugment, solarize, _, _ = rest[:, 3].unbind(-1)
        jittered = _happens(jitter, recipe.jitter)
        augmented = _happens(randaugment, recipe.randaugment)
        operations, signs = rest[:, 4:].reshape(-1, rest.shape[1] * 2 - 8, 2).unbind(-1)
        count = recipe.operations
        drawn = _below(operations[:, :count], len(OPERATIONS))
        radius = _factor(radius, recipe.blur_radius)
        return Parameters(
            top=_place(place_y, tallest - height, found),
            left=_place(place_x, widest - width, found),
            height=height,
            width=width,
            flip=_happens(flip, recipe.flip),
            operations=torch.where(augmented[:, None], drawn, 0),
            negative=_happens(signs[:, :count], 0.5),
            jitter=jittered,
            order=self.orders[_below(order, len(self.orders))],
            factors=torch.where(jittered[:, None], self._factors(rest[:, 1]), 1.0),
            hue=torch.where(jittered, _hue_shift(rest[:, 1, 3], recipe.hue), 0),
            grayscale=_happens(gray, recipe.grayscale),
            radius=torch.where(_happens(blur, recipe.blur), radius, 0.0),
            solarize=_happens(solarize, recipe.solarize),
        )

    def _factors(self, words: Tensor) -> Tensor:
        strengths = (self.recipe.brightness, self.recipe.contrast, self.recipe.saturation)
        drawn = [_factor(words[:, i], (1 - x, 1 + x)) for i, x in enumerate(strengths)]
        return torch.stack(drawn, dim=-1)

    def _crop_shape(
        self, tries: Tensor, heights: Tensor, widths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        # torchvision's: the first of ten shapes that fits; else the largest of a legal ratio.
        low, high = (fixed(value, _AREA_BITS) for value in self.recipe.crop_ratio)
        narrow = widths << _AREA_BITS < heights * low
        wide = widths << _AREA_BITS > heights * high
        half = 1 << (_AREA_BITS - 1)
        tallest = torch.where(narrow, (((widths << _AREA_BITS) + low // 2) // low), heights)
        widest = torch.where(wide, (heights * high + half) >> _AREA_BITS, widths)
        height, width = torch.minimum(tallest, heights), torch.minimum(widest, widths)

        scale_low, scale_high = (fixed(value, _AREA_BITS) for value in self.recipe.crop_scale)
        scale = scale_low + _below(tries[..., 0], scale_high - scale_low + 1)
        area = (heights * widths)[:, None] * scale
        ratio = self.ratios[tries[..., 1] >> (32 - _RATIO_BITS)]
        across, down = (_rounded_root(area * ratio[..., i]) for i in range(2))
        fits = (across > 0) & (across <= widths[:, None])
        fits &= (down > 0) & (down <= heights[:, None])
        for i in reversed(range(_ATTEMPTS)):
            height = torch.where(fits[:, i], down[:, i], height)
            width = torch.where(fits[:, i], across[:, i], width)
        return height, width, fits.any(-1)


def _log_uniform(ratio: Range) -> Tensor:
    # Ratios and their inverses at the middles of equal steps of the logarithm: no device's exp.
    low, high = (math.log(value) for value in ratio)
    steps = 2**_RATIO_BITS
    middles = [low + (high - low) * (step + 0.5) / steps for step in range(steps)]
    pairs = [[fixed(math.exp(sign * x), _AREA_BITS) for sign in (1, -1)] for x in middles]
    return torch.tensor(pairs)


def _rounded_root(value: Tensor) -> Tensor:
    # round(sqrt(value 2^-32)), from the integer root of four times that.
    square = value >> (2 * _AREA_BITS - 2)
    root = square.to(torch.float64).sqrt().to(torch.int64)
    root = root - (root * root > square).to(torch.int64)
    root = root + ((root + 1) * (root + 1) <= square).to(torch.int64)
    return (root + 1) >> 1


def _below(word: Tensor, bound: Tensor | int) -> Tensor:
    return (word * bound) >> 32


def _place(word: Tensor, room: Tensor, found: Tensor) -> Tensor:
    # A crop found by chance lies anywhere, the one to fall back to in the middle.
    return torch.where(found, _below(word, room + 1), room >> 1)


def _happens(word: Tensor, probability: float) -> Tensor:
    return word < fixed(probability, 32)


def _factor(word: Tensor, bounds: Range) -> Tensor:
    low, high = (fixed(value, FACTOR_BITS) for value in bounds)
    return as_float(low + _below(word, high - low + 1), FACTOR_BITS)


def _hue_shift(word: Tensor, hue: float) -> Tensor:
    # torchvision rounds hue 255 towards 0.
    bound = fixed(hue, 20)
    drawn = _below(word, 2 * bound + 1) - bound
    return drawn.sign() * ((drawn.abs() * 255) >> 20)
