"""A picture of all corruptions, at a glance."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from dsf.data.corruptions.apply import CORRUPTIONS, EXTRA, corrupt
from dsf.data.corruptions.constants import SEVERITIES

_GAP = 4
_CELL = 96
_NAME_WIDTH = 140
_HEAD = 24
_TEXT = 15


def corruption_sheet(
    image: Tensor,
    names: Sequence[str] = (*CORRUPTIONS, *EXTRA),
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    blocks: int = 2,
) -> Image.Image:
    """Each row a type with its name, then the image as it is and at each severity.

    Args:
        image: (3, H, W) uint8.
        names: the types.
        severities: the columns.
        seed: of the corruptions.
        blocks: how many rows of types stand side by side.
    """
    if image.dim() != 3 or image.shape[0] != 3 or image.dtype != torch.uint8:
        raise ValueError(
            "image must be uint8 of shape (3, H, W); "
            f"got {image.dtype} of shape {tuple(image.shape)}"
        )
    if not names or not severities or blocks < 1:
        raise ValueError(
            "names, severities and blocks must not be empty; "
            f"got {tuple(names)}, {tuple(severities)}, {blocks}"
        )
    scale = max(1, _CELL // max(image.shape[1:]))
    height, width = (scale * side + _GAP for side in image.shape[1:])
    lines = -(-len(names) // blocks)
    block = _NAME_WIDTH + (1 + len(severities)) * width + 2 * _GAP
    columns = -(-len(names) // lines)
    sheet = Image.new("RGB", (columns * block, _HEAD + lines * height), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(_TEXT)
    for column in range(columns):
        left = column * block + _NAME_WIDTH
        for place, title in enumerate(["clean", *map(str, severities)]):
            middle = left + place * width + (width - _GAP) // 2
            pen.text((middle, _HEAD // 2), title, "black", font, anchor="mm")
    for number, name in enumerate(names):
        column, line = divmod(number, lines)
        left, top = column * block, _HEAD + line * height
        pen.text(
            (left + _NAME_WIDTH - 2 * _GAP, top + height // 2),
            name.replace("_", " "),
            "black",
            font,
            anchor="rm",
        )
        cells = [image, *(corrupt(image[None], name, s, seed)[0] for s in severities)]
        for place, cell in enumerate(cells):
            pixels = cell.permute(1, 2, 0).cpu().numpy()
            large = np.ascontiguousarray(pixels.repeat(scale, axis=0).repeat(scale, axis=1))
            sheet.paste(Image.fromarray(large), (left + _NAME_WIDTH + place * width, top))
    return sheet
