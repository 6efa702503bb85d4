"""Linear evaluation on features that are computed once: the protocol ``fast``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from dsf.evaluation import _logistic
from dsf.evaluation._samples import (
    Samples,
    accuracy,
    check_same_space,
    check_samples,
    classify,
)
from dsf.evaluation.protocol import Protocol, Result
from dsf.evaluation.scores import Scores, score
from dsf.evaluation.subsets import few_labels, hold_out

if TYPE_CHECKING:
    from dsf.evaluation.subject import Subject

WEIGHT_DECAYS = tuple(10.0 ** (exponent / 2) for exponent in range(-10, 1))


@dataclass(frozen=True)
class LinearFast(Protocol):
    """The accuracy of logistic regression on features computed once; see ``linear_fast``.

    Args:
        labels: the share of the training labels that may be used, stratified by class.
        weight_decays: to choose from.
        held_out: the share of the training data to choose on, where the data set has no official
            validation images, or where only some labels may be used.
        tolerance: how short the gradient is at the end.
        max_steps: at most.
    """

    name: ClassVar[str] = "linear"
    method: ClassVar[str] = (
        "logistic regression on fixed features, without augmentation; weight decay chosen on a "
        "part of the training data, then trained on all of it"
    )
    labels: float = 1.0
    weight_decays: tuple[float, ...] = WEIGHT_DECAYS
    held_out: float = 0.1
    tolerance: float = 1e-4
    max_steps: int = 1000

    def settings(self, subject: "Subject") -> dict[str, Any]:
        """Its fields, and on what the weight decay is chosen."""
        chosen_on = subject.task.chosen_on(self.held_out)
        if self.labels < 1:
            chosen_on = f"{self.held_out:g} of those training images whose labels are used"
        return super().settings(subject) | {"chosen_on": chosen_on}

    def evaluate(self, subject: "Subject", seed: int = 0) -> Result:
        """Train and test on the backbone's features."""
        train, test = subject.features("train"), subject.features("test")
        features, labels, official = train.backbone, train.labels, subject.task.validation
        if self.labels != 1:
            rows = few_labels(labels, self.labels, seed)
            features, labels, official = features[rows], labels[rows], None
        found = linear_fast(
            features,
            labels,
            test.backbone,
            test.labels,
            seed,
            self.weight_decays,
            self.held_out,
            subject.task.classes,
            self.tolerance,
            self.max_steps,
            official,
        )
        details = {
            "chosen": found.chosen,
            "held_out": found.held_out,
            "labels_used": len(labels),
            "steps": found.protocol["steps"],
            "final_gradient": found.protocol["final_gradient"],
            **found.scores.details(),
        }
        numbers = {
            "accuracy": found.accuracy,
            "mean_per_class": found.scores.mean_per_class,
            "top5": found.top5,
        }
        final = found.classifier
        state = {
            "mean": final.mean,
            "std": final.std,
            "weight": final.weight[0],
            "bias": final.bias[0],
        }
        return Result(self.describe(subject, seed), numbers, details, state)


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
        scores: accuracy by class, and the confusion matrix.
        classifier: the one that was tested.
    """

    accuracy: float
    chosen: dict[str, float]
    held_out: list[dict[str, float]]
    predictions: Tensor
    top5: float
    protocol: dict[str, Any]
    scores: Scores
    classifier: _logistic.Classifiers


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
    validation: Tensor | None = None,
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
        validation: the rows of the training data to hold out, if not a part by chance.
    """
    train, classes = check_samples("train", train_features, train_labels, classes)
    test, _ = check_samples("test", test_features, test_labels, classes)
    check_same_space(train, test)
    choice = choose_weight_decay(
        *train, seed, weight_decays, held_out, classes, tolerance, max_steps, validation
    )
    with torch.autocast(train.features.device.type, enabled=False):
        final = _logistic.fit(*train, classes, [choice.weight_decay], tolerance, max_steps)
        predictions, top5 = classify(lambda rows: final.logits(rows)[:, 0], test, classes)
    protocol = {
        "name": "fast",
        "method": "logistic regression on fixed features, without augmentation",
        "features": "standardised by the mean and deviation of the training data",
        "objective": "mean cross-entropy + weight_decay / 2 * |weight|^2, minimised over all data",
        "chosen_on": "a part held out from the training data; then trained on all of it",
        "held_out_share": held_out if validation is None else len(validation) / len(train.features),
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
        top5,
        protocol,
        score(predictions, test.labels, classes),
        final,
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
    validation: Tensor | None = None,
) -> Choice:
    """The weight decay that is best on a part held out from the training data.

    Arguments as of ``linear_fast``; there is no test set among them.
    """
    train, classes = check_samples("train", features, labels, classes)
    _check(weight_decays, tolerance, max_steps)
    held, rest = hold_out(train.labels, held_out, seed, validation)
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


def _check(weight_decays: Sequence[float], tolerance: float, max_steps: int) -> None:
    if not weight_decays or not all(0 < decay < float("inf") for decay in weight_decays):
        raise ValueError(
            f"weight_decays must be one or more finite numbers > 0; got {tuple(weight_decays)}"
        )
    if not tolerance > 0:
        raise ValueError(f"tolerance must be > 0; got {tolerance!r}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be >= 1; got {max_steps}")
