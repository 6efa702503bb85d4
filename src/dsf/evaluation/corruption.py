"""Robustness: the errors of a classifier on corrupted test images."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsf.data.corruptions import CORRUPTIONS, SEVERITIES, Published, corrupt, load_published
from dsf.data.corruptions.apply import check_name, check_severity
from dsf.data.corruptions.constants import LARGEST_CIFAR
from dsf.data.corruptions.published import find_published
from dsf.data.corruptions.textures import find_textures

Predict = Callable[[Tensor], Tensor]


class CorruptionResult(NamedTuple):
    """Shares of wrong predictions, all in [0, 1].

    Args:
        mce: the mean over types of ``by_type``, as the paper reports it on CIFAR: a plain mean,
            not divided by the errors of another network.
        clean_error: on the images as they are.
        excess: ``mce`` less ``clean_error``: what corruption costs.
        by_type: of each type, the mean over severities.
        errors: of each type, by severity.
        protocol: how it was computed, fit for JSON.
    """

    mce: float
    clean_error: float
    excess: float
    by_type: dict[str, float]
    errors: dict[str, dict[int, float]]
    protocol: dict[str, Any]


@torch.no_grad()
def corruption_errors(
    predict: Predict,
    images: Tensor,
    labels: Tensor,
    names: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    published: Path | str | None = None,
    classes: Sequence[str] | None = None,
    batch_size: int = 1000,
    device: torch.device | str | None = None,
) -> CorruptionResult:
    """The errors of a classifier on each type and severity of corruption.

    Nothing is trained, adapted or chosen here. What is asked for is looked up before anything is
    computed: a type whose files or textures are missing is an error, never left out of a mean.

    Args:
        predict: (B, 3, H, W) uint8 on the device to the (B,) numbers of the predicted classes.
            Every batch has the same size, unless there are fewer images.
        images: (N, 3, H, W) uint8, clean, on any device.
        labels: (N,) integers.
        names: the types.
        severities: of 1 to 5; the paper uses severity 1 alone.
        seed: of the corruptions.
        published: the folder of CIFAR-10-C or ImageNet-C, to read the corrupted images from; by
            default they are made from ``images``.
        classes: the classes of ImageNet-C's folders in the order of the labels.
        batch_size: images at a time.
        device: where to corrupt and predict; by default where the images are.

    Example:
        >>> images = torch.tensor([60, 200]).byte().view(2, 1, 1, 1).expand(2, 3, 32, 32)
        >>> bright = lambda batch: (batch.float().mean((1, 2, 3)) > 128).long()
        >>> result = corruption_errors(bright, images, torch.tensor([0, 1]), ["fog"], [1, 5])
        >>> result.clean_error, sorted(result.errors["fog"])
        (0.0, [1, 5])
    """
    labels = _checked(images, labels, names, severities, batch_size)
    device = torch.device(device or images.device)
    if published is not None:
        for name in names:
            for severity in severities:
                find_published(published, name, severity)
    elif "frost" in names:
        find_textures()

    def clean(rows: slice) -> Tensor:
        return images[rows].to(device)

    def made(name: str, severity: int) -> _Source:
        def read(rows: slice) -> Tensor:
            samples = torch.arange(rows.start, rows.stop, device=device)
            return corrupt(clean(rows), name, severity, seed, samples)

        return _Source(labels, read)

    def loaded(name: str, severity: int) -> _Source:
        assert published is not None
        files = load_published(published, name, severity, classes, images.shape[-1])
        _check_published(files, labels)
        return _Source(files.labels, lambda rows: files.read(rows.start, rows.stop).to(device))

    source = made if published is None else loaded
    wrong = [_wrong(predict, _Source(labels, clean), batch_size, device)]
    for name in names:
        wrong += [
            _wrong(predict, source(name, severity), batch_size, device) for severity in severities
        ]
    clean_error, *shares = torch.stack(
        wrong
    ).tolist()  # the only time that the device is waited for
    each = iter(shares)
    errors = {name: {severity: next(each) for severity in severities} for name in names}
    by_type = {name: fmean(row.values()) for name, row in errors.items()}
    mce = fmean(by_type.values())
    cifar = max(images.shape[-2:]) <= LARGEST_CIFAR
    protocol: dict[str, Any] = {
        "method": "classification of corrupted test images, without any adaptation",
        "mce": "plain mean over types of the mean error over severities",
        "types": list(names),
        "severities": list(severities),
        "test_samples": len(images),
        "image_size": list(images.shape[-2:]),
    }
    if published is None:
        protocol |= {
            "source": "made from the test images",
            "constants": "CIFAR-10-C" if cifar else "ImageNet-C",
            "seed": seed,
        }
    else:
        protocol |= {"source": "published files", "folder": Path(published).name}
    return CorruptionResult(mce, clean_error, mce - clean_error, by_type, errors, protocol)


class _Source(NamedTuple):
    labels: Tensor
    read: Callable[[slice], Tensor]


def _wrong(predict: Predict, source: _Source, batch_size: int, device: torch.device) -> Tensor:
    """The share of wrong predictions, left on the device."""
    labels = source.labels.to(device)
    count = len(labels)
    batch_size = min(batch_size, count)
    total = torch.zeros((), dtype=torch.int64, device=device)
    for start in range(0, count, batch_size):
        # The last batch begins earlier where they do not divide: one shape for compiled networks.
        rows = slice(min(start, count - batch_size), min(start + batch_size, count))
        predicted = predict(source.read(rows))
        if not _is_prediction(predicted, batch_size):
            got = (
                f"{predicted.dtype} of shape {tuple(predicted.shape)}"
                if isinstance(predicted, Tensor)
                else type(predicted).__name__
            )
            raise ValueError(f"predict must give integers of shape ({batch_size},); got {got}")
        new = start - rows.start
        total += (predicted[new:].to(device) != labels[rows][new:]).sum()
    return total.to(torch.float64) / count


def _is_prediction(predicted: object, count: int) -> bool:
    return (
        isinstance(predicted, Tensor)
        and predicted.shape == (count,)
        and not predicted.is_floating_point()
    )


def _checked(
    images: Tensor,
    labels: Tensor,
    names: Sequence[str],
    severities: Sequence[int],
    batch_size: int,
) -> Tensor:
    for what, values in (("names", names), ("severities", severities)):
        if isinstance(values, str) or not values or len(set(values)) < len(values):
            raise ValueError(f"{what} must be one or more, each once; got {values!r}")
    for name in names:
        check_name(name)
    for severity in severities:
        check_severity(severity)
    if images.dim() != 4 or images.shape[1] != 3 or images.dtype != torch.uint8 or not len(images):
        raise ValueError(
            "images must be uint8 of shape (N, 3, H, W), at least one; "
            f"got {images.dtype} of shape {tuple(images.shape)}"
        )
    if labels.shape != images.shape[:1] or labels.is_floating_point():
        raise ValueError(
            f"labels must be integers of shape ({len(images)},), one an image; "
            f"got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1; got {batch_size}")
    return labels.to(torch.int64)


def _check_published(files: Published, labels: Tensor) -> None:
    if files.origin.suffix == ".npy":
        # The arrays hold the test set in its own order.
        if not torch.equal(files.labels, labels.cpu()):
            raise ValueError(
                f"the labels of {files.origin.parent} must be those of the test images; "
                f"got {len(files)} labels that differ from the {len(labels)} given"
            )
    elif int(files.labels.max()) != int(labels.max()):
        raise ValueError(
            f"{files.origin} must have the classes of the test images, {int(labels.max()) + 1}; "
            f"got {int(files.labels.max()) + 1}: name them in their order by classes"
        )
