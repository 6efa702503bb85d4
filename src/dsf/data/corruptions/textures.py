"""The textures of frost, which ship with the package ``imagecorruptions``."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

_PACKAGE = "imagecorruptions"
# A sixth one ships with them, which the published sets do not use.
_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


def find_textures() -> list[Path]:
    """Where the textures lie; the package's code is not run."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"frost needs the textures of the package {_PACKAGE}, which is not installed: "
            "pip install 'dsf-ssl[corruptions]'"
        )
    folder = Path(spec.origin).parent / "frost"
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} must hold the textures of frost; missing: {missing[0]}")
    return [folder / name for name in _FILES]


def frost_textures(scale: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    """The textures, scaled bilinearly, but each to more than height x width.

    At a scale of 1/5 this picks the middle pixel of every five, as OpenCV's does.

    Returns:
        (5, H, W, 3) bytes, of which each texture fills the upper left, and its (5, 2) int64 sizes.
    """
    return _load(tuple(find_textures()), scale, height, width)


@cache
def _load(paths: tuple[Path, ...], scale: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    textures = []
    for path in paths:
        with Image.open(path) as picture:
            pixels = torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1)
        factor = max(scale, (height + 1) / pixels.shape[1], (width + 1) / pixels.shape[2])
        wide = interpolate(pixels[None].to(torch.float64), scale_factor=factor, mode="bilinear")
        textures.append(wide[0].round().to(torch.uint8).permute(1, 2, 0))
    sizes = torch.tensor([texture.shape[:2] for texture in textures])
    tallest, widest = sizes.amax(0).tolist()
    sheet = torch.zeros(len(textures), tallest, widest, 3, dtype=torch.uint8)
    for room, texture in zip(sheet, textures, strict=True):
        room[: texture.shape[0], : texture.shape[1]] = texture
    return sheet, sizes
