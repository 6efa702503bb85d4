"""Linear evaluation on features that are computed once: the protocol ``fast``."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsf.evaluation import _logistic
from dsf.evaluation._samples import (
    Samples,
    accuracy,
    check_same_space,
    check_samples,
    is_among_first,
)
from dsf.random import permutation

WEIGHT_DECAYS = tuple(10.0 ** (exponent / 2) for exponent in range(-10, 1))
# The last word of the counter of random numbers: no other use of a seed has this one.
_STREAM = 0x4E1D0175


class LinearResult(NamedTuple):
    """How well a linear classifier predicts the test labels.

    Args:
        accuracy: top-1, in [0, 1].
        chosen: the setting that was chosen, ``{"weight_decay": ...}``.
        held_out: one ``{"weight_decay", "accuracy", "gradient"}`` a setting, on the held-out part
            of the training data; ``gradient`` says how far from the minimum training ended.
        predictions: (M,) int64.
        top5: whether the label is among the five highest logits, in [0, 1].
        protocol: how it was computed, fit for JSON.
    """

    accuracy: float
    chosen: dict[str, float]
    held_out: list[dict[str, float]]
    predictions: Tensor
    top5: float
    protocol: dict[str, Any]


class Choice(NamedTuple):
    """A weight decay, and the table it was chosen from."""

    weight_decay: float
    held_out: list[dict[str, float]]
    steps: int


@torch.no_grad()
def linear_fast(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    seed: int = 0,
    weight_decays: Sequence[float] = WEIGHT_DECAYS,
    held_out: float = 0.1,
    classes: int | None = None,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
) -> LinearResult:
    """The accuracy of multinomial logistic regression on fixed features.

    1. ``choose_weight_decay``: a stratified part of the training data is held out by the seed; one
       classifier a weight decay is trained on the rest, all at the same time; the best on the
       held-out part wins, the largest weight decay among equals. It never sees the test set.
    2. A classifier with that weight decay is trained on all training data and meets the test set
       once.

    Features are standardised by the mean and deviation of the data a classifier is trained on.
    The objective is the mean cross-entropy + weight_decay / 2 * |weight|^2, bias free:
    scikit-learn's ``LogisticRegression(C=1 / (N * weight_decay))``. It is convex and minimised to
    the end with the whole data in each step, so that there is no learning rate, batch size or
    number of epochs that could favour one encoder over another; see ``_logistic.fit``. Without
    random batches the result repeats to the bit on the same device, and settings share one
    product a step. Full float32, float64 for features in float64.

    Args:
        train_features: (N, F).
        train_labels: (N,) integers in [0, classes).
        test_features: (M, F), on the same device.
        test_labels: (M,) integers in [0, classes).
        seed: of the part held out, in [0, 2^64).
        weight_decays: to choose from, each > 0.
        held_out: the share of every class that is held out, in (0, 1).
        classes: their number; by default the largest training label + 1.
        tolerance: the training of a classifier ends when its gradient is shorter than this.
        max_steps: training ends at the latest then.
    """
    train, classes = check_samples("train", train_features, train_labels, classes)
    test, _ = check_samples("test", test_features, test_labels, classes)
    check_same_space(train, test)
    choice = choose_weight_decay(
        *train, seed, weight_decays, held_out, classes, tolerance, max_steps
    )
    with torch.autocast(train.features.device.type, enabled=False):
        final = _logistic.fit(*train, classes, [choice.weight_decay], tolerance, max_steps)
        logits = final.logits(test.features)[:, 0]
    predictions = logits.argmax(dim=1)
    protocol = {
        "name": "fast",
        "method": "logistic regression on fixed features, without augmentation",
        "features": "standardised by the mean and deviation of the training data",
        "objective": "mean cross-entropy + weight_decay / 2 * |weight|^2, minimised over all data",
        "chosen_on": "a stratified part held out from the training data; then trained on all of it",
        "held_out_share": held_out,
        "seed": seed,
        "weight_decays": list(weight_decays),
        "tolerance": tolerance,
        "max_steps": max_steps,
        "steps": {"choosing": choice.steps, "final": final.steps},
        "final_gradient": float(final.gradient),
        "classes": classes,
        "train_samples": len(train.features),
        "test_samples": len(test.features),
        "dimension": train.features.shape[1],
    }
    return LinearResult(
        accuracy(predictions, test.labels),
        {"weight_decay": choice.weight_decay},
        choice.held_out,
        predictions,
        int(is_among_first(logits, test.labels, 5).sum()) / len(predictions),
        protocol,
    )


@torch.no_grad()
def choose_weight_decay(
    features: Tensor,
    labels: Tensor,
    seed: int = 0,
    weight_decays: Sequence[float] = WEIGHT_DECAYS,
    held_out: float = 0.1,
    classes: int | None = None,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
) -> Choice:
    """The weight decay that is best on a part held out from the training data.

    Arguments as of ``linear_fast``; there is no test set among them.
    """
    train, classes = check_samples("train", features, labels, classes)
    _check(weight_decays, tolerance, max_steps)
    held, rest = hold_out(train.labels, held_out, seed)
    part, unseen = (Samples(train.features[rows], train.labels[rows]) for rows in (rest, held))
    with torch.autocast(train.features.device.type, enabled=False):
        fitted = _logistic.fit(*part, classes, weight_decays, tolerance, max_steps)
        predictions = fitted.predict(unseen.features)
    scores = [accuracy(row, unseen.labels) for row in predictions.T]
    table = [
        {"weight_decay": decay, "accuracy": score, "gradient": gradient}
        for decay, score, gradient in zip(
            map(float, weight_decays), scores, fitted.gradient.tolist(), strict=True
        )
    ]
    best = max(table, key=lambda row: (row["accuracy"], row["weight_decay"]))
    return Choice(best["weight_decay"], table, fitted.steps)


def hold_out(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted indices of a random part of the samples, and of the rest, the same on every device.

    Each class gives ``share`` of its samples, rounded, but at least one and not all of them; a
    class of one sample gives none.
    """
    if not 0 < share < 1:
        raise ValueError(f"held_out must be in (0, 1); got {share!r}")
    on_cpu = labels.cpu()
    counts = torch.bincount(on_cpu)
    quota = (share * counts.double()).round().long().clamp_min(1).minimum(counts - 1).clamp_min(0)
    if not quota.any():
        raise ValueError(
            f"train_labels must have a class of two samples or more, to hold one out; "
            f"got {len(labels)} samples of {int((counts > 0).sum())} classes"
        )
    order = permutation(seed, torch.tensor(0), _STREAM, torch.arange(len(labels)))
    order = order[on_cpu[order].argsort(stable=True)]  # by class, at random within one
    place = torch.arange(len(labels)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    held = place < quota.repeat_interleave(counts)
    first, second = (order[mask].sort().values.to(labels.device) for mask in (held, ~held))
    return first, second


def _check(weight_decays: Sequence[float], tolerance: float, max_steps: int) -> None:
    if not weight_decays or not all(0 < decay < float("inf") for decay in weight_decays):
        raise ValueError(
            f"weight_decays must be one or more finite numbers > 0; got {tuple(weight_decays)}"
        )
    if not tolerance > 0:
        raise ValueError(f"tolerance must be > 0; got {tolerance!r}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be >= 1; got {max_steps}")
