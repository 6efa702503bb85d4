"""Whether what was exported computes what the run's encoder does."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from dsf.data.embedded import load
from dsf.experiments.exported import Source
from dsf.export.target import Loading

TOLERANCE = 1e-4
# Two sizes, since a batch must be free to have any.
_BATCHES = (5, 2)


def check(source: Source, loadings: list[Loading]) -> float:
    """Load in every way whose library is here, and compare; returns the largest difference.

    Differences count in parts of the features' root mean square, or as they are if that is
    below 1.
    """
    images = sample_images(source, sum(_BATCHES))
    with torch.no_grad():
        expected = source.trained(images)
    worst = 0.0
    for loading in loadings:
        if not loading.installed:
            continue
        try:
            encode = loading.load()
        except RuntimeError as error:
            raise ValueError(
                f"what {loading.library} makes has other tensors than the run's encoder: nothing "
                f"is exported ({str(error).splitlines()[0]})"
            ) from error
        found = torch.cat([encode(part) for part in images.split(_BATCHES)])
        worst = max(worst, _difference(loading.library, found, expected))
    return worst


def sample_images(source: Source, count: int) -> Tensor:
    """Normalised photographs: (count, 3, S, S)."""
    pixels = load("test").images()[:count].float() / 255
    side = (source.image_size, source.image_size)
    pixels = interpolate(pixels, size=side, mode="bilinear", antialias=True)
    mean, std = (torch.tensor(part).view(3, 1, 1) for part in (source.mean, source.std))
    return (pixels - mean) / std


def _difference(library: str, found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape:
        raise ValueError(
            f"what {library} loads gives features of the shape {tuple(found.shape)}; the run's "
            f"encoder gives {tuple(expected.shape)}: nothing is exported"
        )
    scale = max(1.0, float(expected.square().mean().sqrt()))
    difference = float((found - expected).abs().max()) / scale
    if not difference <= TOLERANCE:
        raise ValueError(
            f"what {library} loads gives other features than the run's encoder, by {difference:.1g}"
            f" where {TOLERANCE:g} would do: nothing is exported"
        )
    return difference
