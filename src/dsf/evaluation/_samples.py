"""What the evaluations share: checked features and labels, and the scores of predictions."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# Logits held at a time: 256 MiB in float32.
_BLOCK = 2**26


class Samples(NamedTuple):
    """Features (N, F), at least in float32, and labels (N,) in int64 on the same device."""

    features: Tensor
    labels: Tensor


def check_samples(
    name: str, features: Tensor, labels: Tensor, classes: int | None
) -> tuple[Samples, int]:
    """Samples that fit together, and the number of classes: by default the largest label + 1.

    Waits for the device: it looks at the values.
    """
    if features.dim() != 2 or 0 in features.shape or not features.is_floating_point():
        raise ValueError(
            f"{name}_features must be floats of shape (N, F), none of them 0; "
            f"got {features.dtype} of shape {tuple(features.shape)}"
        )
    broken = first_broken_row(features)
    if broken is not None:
        count, first = broken
        raise ValueError(
            f"{name}_features must be finite; got {count} of {len(features)} samples with NaN or "
            f"infinity, the first at index {first}"
        )
    integers = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    if labels.shape != features.shape[:1] or not integers:
        raise ValueError(
            f"{name}_labels must be integers of shape ({len(features)},), one a sample; "
            f"got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    low, high = (int(bound) for bound in labels.aminmax())
    if classes is None:
        classes = max(high + 1, 1)
    if classes < 1:
        raise ValueError(f"classes must be >= 1; got {classes}")
    if low < 0 or high >= classes:
        raise ValueError(
            f"{name}_labels must be in [0, {classes}), the number of classes; got {low} to {high}"
        )
    if features.dtype != torch.float64:
        features = features.float()
    return Samples(features.detach(), labels.to(features.device, torch.int64)), classes


def check_same_space(train: Samples, test: Samples) -> None:
    """Raise unless the features of both have the same width, precision and device."""
    for what in ("width", "dtype", "device"):
        have = [
            samples.features.shape[1] if what == "width" else getattr(samples.features, what)
            for samples in (train, test)
        ]
        if have[0] != have[1]:
            raise ValueError(
                f"train_features and test_features must have the same {what}; "
                f"got {have[0]} and {have[1]}"
            )


def first_broken_row(features: Tensor) -> tuple[int, int] | None:
    """How many rows are not finite, and the first of them; None if all are."""
    # Whatever is not finite makes the sum so; a sum that overflows only asks for a closer look.
    if bool(features.sum(dim=1).isfinite().all()):
        return None
    broken = ~features.isfinite().all(dim=1)
    count = int(broken.sum())
    return (count, int(broken.nonzero()[0])) if count else None


def accuracy(predictions: Tensor, labels: Tensor) -> float:
    """The share of predictions that are right."""
    return int((predictions == labels).sum()) / len(labels)


def classify(
    logits: Callable[[Tensor], Tensor], samples: Samples, classes: int
) -> tuple[Tensor, float]:
    """The (N,) most likely classes, and the share of labels among the five most likely ones.

    Args:
        logits: (n, C) of (n, F) features; asked for few enough samples that these fit.
        samples: features and labels.
        classes: C.
    """
    predictions, among_five = [], []
    size = max(1, _BLOCK // classes)
    for features, labels in zip(*(part.split(size) for part in samples), strict=True):
        found = logits(features)
        predictions.append(found.argmax(dim=1))
        among_five.append(is_among_first(found, labels, 5))
    return torch.cat(predictions), int(torch.cat(among_five).sum()) / len(samples.labels)


def is_among_first(scores: Tensor, labels: Tensor, count: int) -> Tensor:
    """Whether the label is among the ``count`` highest of (N, C) scores, lower classes first."""
    own = scores.gather(1, labels[:, None])
    lower = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
    before = (scores > own) | ((scores == own) & lower)
    return before.sum(dim=1) < count
