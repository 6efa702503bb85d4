"""What predictions are worth: overall, for each class, and which classes are taken for which."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Metric = Literal["top-1", "mean per class"]

# A larger confusion matrix would make up most of a file of results.
_SHOWN_CLASSES = 256


class Scores(NamedTuple):
    """How good predictions are.

    Args:
        accuracy: the share of samples that are right, top-1.
        mean_per_class: the mean of the classes' accuracies, over those with samples.
        per_class: (C,) float64, NaN for a class without samples.
        predictions: (N,) on the CPU.
        labels: the same.
    """

    accuracy: float
    mean_per_class: float
    per_class: Tensor
    predictions: Tensor
    labels: Tensor

    @property
    def confusion(self) -> Tensor:
        """(C, C) int64, samples of the class of the row predicted as that of the column.

        Counted when asked for: of 100,000 classes it would take 75 GiB.
        """
        classes = len(self.per_class)
        known = (self.predictions >= 0) & (self.predictions < classes)
        pairs = self.labels[known] * classes + self.predictions[known]
        return torch.bincount(pairs, minlength=classes**2).view(classes, classes)

    def by(self, metric: Metric) -> float:
        """The number that a data set is reported with."""
        return self.mean_per_class if metric == "mean per class" else self.accuracy

    def details(self) -> dict[str, Any]:
        """For JSON: the matrix is left out beyond 256 classes."""
        per_class = [None if value != value else value for value in self.per_class.tolist()]
        details: dict[str, Any] = {"per_class": per_class}
        if len(per_class) <= _SHOWN_CLASSES:
            details["confusion"] = self.confusion.tolist()
        return details


def score(predictions: Tensor, labels: Tensor, classes: int) -> Scores:
    """Compare predictions with labels, both (N,); a prediction outside [0, C) is wrong.

    Example:
        >>> found = score(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 0, 1]), classes=2)
        >>> found.accuracy, round(found.mean_per_class, 3), found.confusion.tolist()
        (0.5, 0.667, [[1, 2], [0, 1]])
    """
    predictions, labels = predictions.cpu(), labels.cpu()
    counts = torch.bincount(labels, minlength=classes)
    right = torch.bincount(labels[predictions == labels], minlength=classes)
    per_class = right.double() / counts  # 0 / 0 is NaN
    return Scores(
        int(right.sum()) / len(labels),
        per_class.nanmean().item(),
        per_class,
        predictions,
        labels,
    )
