"""Corrupt a batch of images."""

from collections.abc import Callable

import torch
from torch import Tensor

from dsf.data.corruptions import blur, colour, noise, weather
from dsf.data.corruptions.constants import SEVERITIES, Constants, constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.elastic import elastic_transform
from dsf.data.corruptions.jpeg import jpeg_compression
from dsf.data.corruptions.pixelate import pixelate
from dsf.data.corruptions.spatter import spatter

_SMALLEST = 16
_AT_ONCE = 2**24  # bytes of images; calculations take up to 120 times as much

_FUNCTIONS: dict[str, Callable[[Tensor, Constants, Draws], Tensor]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "brightness": colour.brightness,
    "contrast": colour.contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "spatter": spatter,
    "saturate": colour.saturate,
    "fog": weather.fog,
}

EXTRA = ("fog",)
"""In CIFAR-10-C and ImageNet-C, but not among the types of the paper."""

CORRUPTIONS = tuple(name for name in _FUNCTIONS if name not in EXTRA)
"""The 18 types of the paper, in its order."""

# Numbers for the random numbers: another order must not change what a seed gives.
_NUMBERS = {name: number for number, name in enumerate((*CORRUPTIONS, *EXTRA))}


@torch.no_grad()
def corrupt(
    images: Tensor, name: str, severity: int, seed: int = 0, samples: Tensor | None = None
) -> Tensor:
    """Images as CIFAR-10-C and ImageNet-C corrupt them, on the device where they lie.

    Up to 64 pixels the constants are CIFAR-10-C's, above ImageNet-C's. Chance is decided by
    seed, type, severity and sample alone: batches and devices do not matter. Everything is
    calculated in float64 and cut off to bytes at the end, as in the published sets. Large batches
    are taken in parts, so that what lies in memory beside them is two gigabytes at most.

    Args:
        images: (N, 3, H, W) uint8, both sides at least 16.
        name: one of ``CORRUPTIONS`` or ``EXTRA``.
        severity: 1 to 5.
        seed: in [0, 2^64).
        samples: (N,) integers in [0, 2^32), which of the data set the images are, so that each
            keeps its random numbers in every batch; by default 0, 1, ...

    Returns:
        uint8 of the same shape, on the same device.

    Raises:
        FileNotFoundError: for frost without the package that has its textures.

    Example:
        >>> images = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
        >>> corrupt(images, "brightness", severity=1).unique().tolist()
        [112]
    """
    _check(images, name, severity, samples)
    if samples is None:
        samples = torch.arange(len(images), device=images.device)
    chosen = constants(name, severity, max(images.shape[-2:]))
    few = max(1, _AT_ONCE // images[0].numel())
    parts = [
        _FUNCTIONS[name](
            some.contiguous(), chosen, Draws(seed, _NUMBERS[name], severity, which.to(torch.int64))
        )
        for some, which in zip(images.split(few), samples.split(few), strict=True)
    ]
    return torch.cat(parts)


def check_name(name: str) -> None:
    """Raise unless there is such a type."""
    if name not in _FUNCTIONS:
        raise ValueError(f"corruption must be one of {', '.join(_FUNCTIONS)}; got {name!r}")


def check_severity(severity: int) -> None:
    """Raise unless it is one of the five."""
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be one of {SEVERITIES}; got {severity!r}")


def _check(images: Tensor, name: str, severity: int, samples: Tensor | None) -> None:
    check_name(name)
    check_severity(severity)
    if images.dim() != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
        raise ValueError(
            "images must be uint8 of shape (N, 3, H, W); "
            f"got {images.dtype} of shape {tuple(images.shape)}"
        )
    if len(images) == 0 or min(images.shape[-2:]) < _SMALLEST:
        raise ValueError(
            f"images must be at least one, of at least {_SMALLEST} x {_SMALLEST} pixels; "
            f"got shape {tuple(images.shape)}"
        )
    if samples is None:
        return
    if samples.shape != images.shape[:1] or samples.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"samples must be integers of shape ({len(images)},); "
            f"got {samples.dtype} of shape {tuple(samples.shape)}"
        )
    if samples.device != images.device:
        raise ValueError(
            f"samples must be on the images' device, {images.device}; got {samples.device}"
        )
