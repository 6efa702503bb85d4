"""What settings must agree on with each other, where more than one part is concerned."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsf.experiments.settings import Settings

PATCHES = "mocov3-vit-"
"""How the encoders begin that are made for one size of images."""


def scaled_rate(base: float, batch_size: int) -> float:
    """The learning rate that a base rate, for 256 images, gives a batch."""
    return base * batch_size / 256


def check_rate(settings: "Settings") -> None:
    """Raise ``ValueError`` where a learning rate is not what the base rate makes it."""
    optimiser, batch_size = settings.optimiser, settings.batch_size
    if optimiser.base_lr is None:
        return
    scaled = scaled_rate(optimiser.base_lr, batch_size)
    if not math.isclose(optimiser.lr, scaled, rel_tol=1e-6):
        raise ValueError(
            f"optimiser.lr: with optimiser.base_lr={optimiser.base_lr:g} and {batch_size} images a "
            f"step it is {scaled:g}; got {optimiser.lr:g}. Take optimiser.base_lr=null for a rate "
            "of your own, or optimiser.lr=null for the scaled one"
        )


def check_patches(settings: "Settings") -> None:
    """Raise ``ValueError`` where a transformer is made for other images than it sees."""
    encoder, size = settings.encoder, settings.views.size
    if not encoder.name.startswith(PATCHES):
        return
    if size % 16:
        raise ValueError(
            f"views.size: must be a multiple of the patches of {encoder.name}, 16 pixels; "
            f"got {size}"
        )
    if encoder.options.get("image_size", size) != size:
        raise ValueError(
            f"encoder.options: image_size must be views.size, {size}, which it is if left out; "
            f"got {encoder.options['image_size']!r}"
        )


def check_count(settings: "Settings", images: int) -> None:
    """Raise ``ValueError`` where a batch has more images than there are."""
    if settings.batch_size > images:
        raise ValueError(
            f"batch_size: must be at most the {images} images; got {settings.batch_size}"
        )
