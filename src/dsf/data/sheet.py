"""A picture of images and their views: what a recipe does to them, at a glance."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from dsf.data.sampler import EpochSampler
from dsf.data.source import Bytes
from dsf.data.split import Split

if TYPE_CHECKING:
    from dsf.data.augment import Recipe

_GAP = 4
_CELL = 96
_TEXT = 15
_LINE = 20


def view_sheet(
    split: Split,
    images: int = 6,
    views: int = 8,
    recipe: "str | Recipe | Sequence[Recipe]" = "cifar",
    size: int | None = None,
    seed: int = 0,
    exact: bool = True,
) -> Image.Image:
    """Each row an image as stored, then its views; the seed chooses images and views.

    Args:
        split: where the images come from.
        images: how many rows.
        views: how many views an image.
        recipe: a ``dsf.data.augment.Recipe``, or the name of one in ``RECIPES``, or a recipe for
            each half of the views.
        size: the side of a view; by default that of the stored images.
        seed: of both choices.
        exact: as of ``dsf.data.augment.Views``.
    """
    from dsf.data.augment import RECIPES, Recipe, Views

    if isinstance(recipe, str) and recipe not in RECIPES:
        raise ValueError(f"recipe must be one of {', '.join(RECIPES)}; got {recipe!r}")
    if not 1 <= images <= len(split):
        raise ValueError(f"images must be in [1, {len(split)}]; got {images}")
    if views < 1:
        raise ValueError(f"views must be >= 1; got {views}")
    size = split.image_size if size is None else size
    recipes = [recipe] if isinstance(recipe, str | Recipe) else recipe
    makers = [Views(kind, size, seed, exact) for kind in recipes]
    samples = EpochSampler(len(split), 1, seed, rank=0, world_size=1).order(0)[:images]
    stored = split.gather(samples)
    sizes = split.sizes()
    before = None if sizes is None else sizes[samples]
    halves = torch.arange(views).chunk(len(makers))
    pixels = torch.cat(
        [
            _pixels(make(stored, samples, 0, half, before), make.recipe)
            for make, half in zip(makers, halves, strict=False)  # one view is of the first
        ],
        dim=1,
    )
    rows = [
        [_resized(image.permute(1, 2, 0).numpy(), size), *row.permute(0, 2, 3, 1).numpy()]
        for image, row in zip(stored, pixels, strict=True)
    ]
    return Image.fromarray(grid(rows))


def captioned(sheet: Image.Image, caption: str) -> Image.Image:
    """A sheet with a line or more of text above it."""
    font = ImageFont.load_default(_TEXT)
    words = caption.encode(errors="backslashreplace").decode()  # names of files may be any bytes
    # Lines differ in how wide their letters are: a tenth is left for that.
    letters = 0.9 * (sheet.width - 2 * _GAP) / font.getlength(words) * len(words)
    lines = textwrap.wrap(words, max(1, int(letters)))
    head = _GAP + _LINE * len(lines)
    result = Image.new("RGB", (sheet.width, head + sheet.height), "white")
    pen = ImageDraw.Draw(result)
    for number, line in enumerate(lines):
        pen.text((_GAP, _GAP + _LINE * number), line, "black", font)
    result.paste(sheet, (0, head))
    return result


def grid(rows: list[list[Bytes]]) -> Bytes:
    """Squares of one size, enlarged to be seen, on white; a wider gap after the first column."""
    size = rows[0][0].shape[0]
    scale = max(1, _CELL // size)
    side = size * scale
    height = len(rows) * (side + _GAP) + _GAP
    width = len(rows[0]) * (side + _GAP) + 2 * _GAP
    sheet = np.full((height, width, 3), 255, dtype=np.uint8)
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            top = _GAP + row * (side + _GAP)
            left = _GAP + column * (side + _GAP) + (_GAP if column else 0)
            enlarged = cell.repeat(scale, axis=0).repeat(scale, axis=1)
            sheet[top : top + side, left : left + side] = enlarged
    return sheet


def _pixels(views: Tensor, recipe: "Recipe") -> Tensor:
    """Views as levels, the normalisation undone."""
    mean, std = (torch.as_tensor(value).reshape(3, 1, 1) for value in (recipe.mean, recipe.std))
    return ((views * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)


def _resized(image: Bytes, size: int) -> Bytes:
    if image.shape[0] == size:
        return image
    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC))
