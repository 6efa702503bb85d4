"""Features of images, without augmentation, in evaluation mode."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dsf.evaluation._samples import first_broken_row


@torch.no_grad()
def extract(
    encoder: nn.Module,
    images: Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    batch_size: int = 512,
    device: torch.device | str | None = None,
    project: Callable[[Tensor], Tensor] | None = None,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """The features of images that lie in memory.

    The images stay as they are, in uint8 where they lie; one batch at a time is copied to the
    device and normalised there. Every batch has the same size, so that a compiled encoder is
    compiled once: the last one begins earlier where the images do not divide, which changes
    nothing, since no image meets another in evaluation mode. All modules are put back into the
    modes they were in, also after an error.

    Args:
        encoder: (B, 3, H, W) images to (B, F) features.
        images: (N, 3, H, W) uint8.
        mean: of the levels divided by 255, a channel each.
        std: what they are divided by after that.
        batch_size: images at a time.
        device: where to compute; by default where the encoder's parameters are.
        project: applied to the features of each batch in float32 (float64), such as a head. A
            module is put into evaluation mode too; modules that a function holds are not.
        autocast: torch.bfloat16 or torch.float16 for the encoder; full precision by default,
            whatever context this is called in.

    Returns:
        (N, F) in float32, or float64 if the encoder is, on the device.

    Raises:
        ValueError: also for features that are not finite, after all images have been seen.
    """
    if images.dim() != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
        raise ValueError(
            "images must be uint8 of shape (N, 3, H, W); "
            f"got {images.dtype} of shape {tuple(images.shape)}"
        )
    if 0 in images.shape:
        raise ValueError(f"images must not be empty; got shape {tuple(images.shape)}")
    encode = Encode(encoder, mean, std, device or _device_of(encoder, images), autocast)
    rows = same_size_batches(len(images), batch_size)
    batches = ((part, encode.normalise(images[part].to(encode.device))) for part in rows)
    return extract_batches(encode, batches, len(images), project)


class Encode:
    """An encoder with its normalisation, device and precision.

    Arguments as of ``extract``.
    """

    def __init__(
        self,
        encoder: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str,
        autocast: torch.dtype | None = None,
    ) -> None:
        _check(mean, std, autocast)
        parameter = next((p for p in encoder.parameters() if p.is_floating_point()), None)
        self.encoder, self.device, self.autocast = encoder, torch.device(device), autocast
        self.dtype = torch.float32 if parameter is None else parameter.dtype
        self.precision = torch.promote_types(self.dtype, torch.float32)
        # The same arithmetic as of the views in training.
        self._shift, self._scale = (
            torch.tensor(values, dtype=self.precision, device=self.device)[:, None, None]
            for values in ([255 * m for m in mean], [1 / (255 * s) for s in std])
        )

    def normalise(self, images: Tensor) -> Tensor:
        """Bytes as the encoder takes them."""
        return (images.to(self.precision) - self._shift) * self._scale

    def __call__(self, batch: Tensor) -> Tensor:
        """(B, F) features of (B, 3, H, W) normalised images, in at least float32."""
        reduced = self.autocast is not None
        if not reduced:
            batch = batch.to(self.dtype)
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=reduced):
            features = _matrix("encoder", self.encoder(batch), len(batch))
        return features.to(self.precision)


@torch.no_grad()
def extract_batches(
    encode: Encode,
    batches: Iterable[tuple[slice, Tensor]],
    count: int,
    project: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """(count, F) features of batches of normalised images, each with the rows it stands for."""
    result: Tensor | None = None
    with evaluating(encode.encoder, project):
        for rows, batch in batches:
            features = encode(batch)
            if project is not None:
                with torch.autocast(encode.device.type, enabled=False):
                    features = _matrix("project", project(features), len(batch))
            if result is None:
                result = features.new_empty((count, features.shape[1]), dtype=encode.precision)
            result[rows] = features
    assert result is not None  # there is at least one image
    broken = first_broken_row(result)
    if broken is not None:
        raise ValueError(
            f"the features of {broken[0]} of {count} images are not finite, the first at index "
            f"{broken[1]}: the encoder has diverged, or overflows in "
            f"{encode.autocast or encode.dtype}"
        )
    return result


def same_size_batches(count: int, batch_size: int) -> Iterator[slice]:
    """Rows that cover [0, count) in batches of one size; the last may overlap that before it."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1; got {batch_size}")
    size = min(batch_size, count)
    return (
        slice(min(start, count - size), min(start + size, count)) for start in range(0, count, size)
    )


@contextmanager
def evaluating(*parts: object) -> Iterator[None]:
    """Modules in evaluation mode; each goes back into its own mode at the end."""
    roots = [part for part in parts if isinstance(part, nn.Module)]
    # One by one: a frozen layer may be in another mode than the module that holds it.
    modes = [(module, module.training) for root in roots for module in root.modules()]
    try:
        for root in roots:
            root.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def _device_of(encoder: nn.Module, images: Tensor) -> torch.device:
    parameter = next((p for p in encoder.parameters() if p.is_floating_point()), None)
    return images.device if parameter is None else parameter.device


def _matrix(name: str, features: Tensor, count: int) -> Tensor:
    if not isinstance(features, Tensor) or features.dim() != 2 or len(features) != count:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(f"{name} must give features of shape ({count}, F); got {got}")
    return features


def _check(mean: Sequence[float], std: Sequence[float], autocast: torch.dtype | None) -> None:
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != 3:
            raise ValueError(f"{name} must have one number a channel, 3; got {tuple(values)}")
    if not min(std) > 0:
        raise ValueError(f"std must be positive; got {tuple(std)}")
    if autocast not in (None, torch.bfloat16, torch.float16):
        raise ValueError(
            f"autocast must be None, torch.bfloat16 or torch.float16; got {autocast!r}"
        )
