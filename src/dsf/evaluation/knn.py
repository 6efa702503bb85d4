"""Weighted k-nearest-neighbour classification of features."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsf.evaluation._samples import accuracy, check_same_space, check_samples, is_among_first
from dsf.losses._precision import matmul

# Similarities held at a time: 256 MiB in float32.
_BLOCK = 2**26


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
    test_features: Tensor,
    test_labels: Tensor,
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

    Args:
        train_features: (N, F), not normalised.
        train_labels: (N,) integers in [0, classes).
        test_features: (M, F), on the same device.
        test_labels: (M,) integers in [0, classes).
        k: the number of neighbours, at most N.
        temperature: > 0.
        classes: their number; by default the largest training label + 1.
        chunk: test samples compared at a time, which bounds the memory to chunk x N similarities;
            by default as many as 256 MiB hold in float32.

    Example:
        >>> train = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> result = knn(train, torch.tensor([0, 0, 1]), train, torch.tensor([0, 1, 1]), k=2)
        >>> result.predictions.tolist(), round(result.accuracy, 3)
        ([0, 0, 1], 0.667)
    """
    train, classes = check_samples("train", train_features, train_labels, classes)
    test, _ = check_samples("test", test_features, test_labels, classes)
    check_same_space(train, test)
    count = len(train.features)
    if not 1 <= k <= count:
        raise ValueError(f"k must be in [1, {count}], the number of training samples; got {k}")
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature must be > 0 and finite; got {temperature!r}")
    if chunk is None:
        chunk = max(1, _BLOCK // count)
    if chunk < 1:
        raise ValueError(f"chunk must be >= 1; got {chunk}")

    predictions, among_five = [], []
    with torch.autocast(train.features.device.type, enabled=False):
        keys = _unit(train.features).T
        queries = _unit(test.features)
        for rows, labels in zip(queries.split(chunk), test.labels.split(chunk), strict=True):
            similarity, neighbours = matmul(rows, keys).topk(k, dim=1, sorted=False)
            # Relative to the strongest: exp(s / temperature) itself may overflow.
            exponents = (similarity - similarity.amax(dim=1, keepdim=True)) / temperature
            votes = _count_votes(exponents.exp_(), train.labels[neighbours], classes)
            predictions.append(votes.argmax(dim=1))
            among_five.append(is_among_first(votes, labels, 5))
    predicted = torch.cat(predictions)
    protocol = {
        "method": "weighted kNN: cosine similarity s, votes exp(s / temperature)",
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
