"""Weighted k-nearest-neighbour classification of features."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from dsf.evaluation._samples import accuracy, check_same_space, check_samples, is_among_first
from dsf.evaluation.protocol import Protocol, Result
from dsf.evaluation.scores import score
from dsf.precision import matmul

if TYPE_CHECKING:
    from dsf.evaluation.subject import Subject

# Similarities or votes held at a time: 256 MiB in float32, 512 in int64.
_BLOCK = 2**26


@dataclass(frozen=True)
class KNN(Protocol):
    """The accuracy of weighted votes of neighbours; see ``knn``.

    Args:
        k: the number of neighbours, at most as many as there are training images.
        temperature: of the votes, > 0.
        lowered_from: the k that was asked for, where there are fewer training images than that.
        leave_one_out: predict each training image by the others, and leave the test set alone:
            what settings may be chosen by.
    """

    name: ClassVar[str] = "knn"
    method: ClassVar[str] = "weighted kNN: cosine similarity s, votes exp(s / temperature)"
    k: int = 200
    temperature: float = 0.1
    lowered_from: int | None = None
    leave_one_out: bool = False

    def at_most(self, bank: int) -> "KNN":
        """The same with a k that fits the bank of training images, and a note if it is lowered."""
        return self if self.k <= bank else replace(self, k=bank, lowered_from=self.k)

    def settings(self, subject: "Subject") -> dict[str, Any]:
        """Its fields; without those that say nothing."""
        found = super().settings(subject)
        return {name: value for name, value in found.items() if value not in (None, False)}

    def check(self, subject: "Subject") -> None:
        """See that there are k neighbours."""
        bank = len(subject.task.train) - self.leave_one_out
        if not 1 <= self.k <= bank:
            raise ValueError(
                f"k must be in [1, {bank}], the number of training images in the bank; got {self.k}"
            )

    def evaluate(self, subject: "Subject", seed: int = 0) -> Result:
        """The accuracy of the backbone's features and, if there is a head, of the projection's."""
        self.check(subject)
        classes = subject.task.classes
        train = subject.features("train")
        test = train if self.leave_one_out else subject.features("test")
        numbers, details = {}, {}
        for kind, features in train.kinds().items():
            found = knn(
                features,
                train.labels,
                None if self.leave_one_out else test.kinds()[kind],
                None if self.leave_one_out else test.labels,
                *(self.k, self.temperature, classes),
            )
            scores = score(found.predictions, test.labels, classes)
            numbers[kind] = found.accuracy
            details[kind] = {
                "top5": found.top5,
                "mean_per_class": scores.mean_per_class,
                "dimension": features.shape[1],
                **scores.details(),
            }
        return Result(self.describe(subject, seed), numbers, details)


class KNNResult(NamedTuple):
    """How well neighbours predict the test labels.

    Args:
        accuracy: top-1, in [0, 1].
        predictions: (N,) int64.
        top5: whether the label is among the five classes with the most votes, in [0, 1].
        protocol: how it was computed, fit for JSON.
    """

    accuracy: float
    predictions: Tensor
    top5: float
    protocol: dict[str, Any]


@torch.no_grad()
def knn(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor | None = None,
    test_labels: Tensor | None = None,
    k: int = 200,
    temperature: float = 0.1,
    classes: int | None = None,
    chunk: int | None = None,
) -> KNNResult:
    """Predict each test label by the votes of the k most similar training samples.

    A neighbour of cosine similarity s votes for its class with weight exp(s / temperature).
    float64 features are compared in float64, all others in full float32, whatever autocast and
    TF32 are set to. A sample whose features are all zero has similarity 0 to every other.

    Equal votes go to the lowest class. Votes are summed as integers, in units of the strongest
    one / 2^(62 - bits of k), so that their order cannot matter: results repeat to the bit on the
    same device. Which of several training samples that tie for the k-th place may vote is up to
    ``torch.topk``.

    Without test samples it predicts each training sample by all the others (leave one out).

    Args:
        train_features: (N, F), not normalised.
        train_labels: (N,) integers in [0, classes).
        test_features: (M, F), on the same device.
        test_labels: (M,) integers in [0, classes).
        k: the number of neighbours, at most N, or N - 1 where one is left out.
        temperature: > 0.
        classes: their number; by default the largest training label + 1.
        chunk: test samples compared at a time, which bounds the memory to chunk x N similarities
            and chunk x classes votes; by default so many that there are 2^26 of either, at most.

    Example:
        >>> train = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> result = knn(train, torch.tensor([0, 0, 1]), train, torch.tensor([0, 1, 1]), k=2)
        >>> result.predictions.tolist(), round(result.accuracy, 3)
        ([0, 0, 1], 0.667)
    """
    train, classes = check_samples("train", train_features, train_labels, classes)
    leave_one_out = test_features is None and test_labels is None
    if leave_one_out:
        test = train
    elif test_features is None or test_labels is None:
        raise ValueError("test_features and test_labels must be given both, or neither")
    else:
        test, _ = check_samples("test", test_features, test_labels, classes)
    check_same_space(train, test)
    count = len(train.features) - leave_one_out
    if not 1 <= k <= count:
        raise ValueError(f"k must be in [1, {count}], the number of training samples; got {k}")
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature must be > 0 and finite; got {temperature!r}")
    if chunk is None:
        chunk = max(1, _BLOCK // max(len(train.features), classes))
    if chunk < 1:
        raise ValueError(f"chunk must be >= 1; got {chunk}")

    predictions, among_five = [], []
    with torch.autocast(train.features.device.type, enabled=False):
        keys = _unit(train.features).T
        queries = keys.T if leave_one_out else _unit(test.features)
        for start in range(0, len(queries), chunk):
            labels = test.labels[start : start + chunk]
            similarities = matmul(queries[start : start + chunk], keys)
            if leave_one_out:
                similarities.diagonal(start).fill_(-math.inf)
            similarity, neighbours = similarities.topk(k, dim=1, sorted=False)
            # Relative to the strongest: exp(s / temperature) itself may overflow.
            exponents = (similarity - similarity.amax(dim=1, keepdim=True)) / temperature
            votes = _count_votes(exponents.exp_(), train.labels[neighbours], classes)
            predictions.append(votes.argmax(dim=1))
            among_five.append(is_among_first(votes, labels, 5))
    predicted = torch.cat(predictions)
    protocol = {
        "method": KNN.method,
        "leave_one_out": leave_one_out,
        "k": k,
        "temperature": temperature,
        "classes": classes,
        "train_samples": count,
        "test_samples": len(predicted),
        "dimension": train.features.shape[1],
    }
    top5 = int(torch.cat(among_five).sum()) / len(predicted)
    return KNNResult(accuracy(predicted, test.labels), predicted, top5, protocol)


def _unit(features: Tensor) -> Tensor:
    # Divided by the largest entry first, since the squares of extreme ones leave float32's range.
    for order in (math.inf, 2):
        length = torch.linalg.vector_norm(features, ord=order, dim=1, keepdim=True)
        features = features / length.clamp_min(torch.finfo(features.dtype).tiny)
    return features


def _count_votes(weights: Tensor, voted: Tensor, classes: int) -> Tensor:
    """(B, C) votes of (B, k) neighbours for the classes ``voted``; weights in [0, 1].

    Integers, because a GPU adds in any order, and only their sums do not depend on it.
    """
    scale = 2.0 ** (62 - weights.shape[1].bit_length())
    votes = torch.zeros(len(voted), classes, dtype=torch.int64, device=voted.device)
    return votes.scatter_add_(1, voted, (weights * scale).to(torch.int64))
