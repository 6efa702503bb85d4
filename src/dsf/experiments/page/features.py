"""What can be seen of features: who is near whom, and a plane to look at them."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

# Less variance than this is rounding: the directions are all the same.
_NOTHING = 1e-24


@dataclass(frozen=True)
class Plane:
    """Features in two dimensions.

    Args:
        coordinates: (N, 2) in float64.
        share: the part of all variance that the plane holds.
    """

    coordinates: Tensor
    share: float


@dataclass(frozen=True)
class Look:
    """What is shown of one encoder.

    Args:
        plane: of the test images.
        neighbours: (Q, k), the training images nearest to the query images.
        agreement: the share of the k nearest training images, over all test images, that have
            the class of the test image.
        separation: the part of the variance of the test images' features that lies between the
            means of their classes.
    """

    plane: Plane
    neighbours: Tensor
    agreement: float
    separation: float


def look(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    queries: Tensor,
    k: int = 5,
) -> Look:
    """Look at an encoder through its features.

    Args:
        train_features: (N, F).
        train_labels: (N,).
        test_features: (T, F).
        test_labels: (T,).
        queries: (Q,), the test images whose neighbours are wanted.
        k: how many neighbours.
    """
    found = nearest(train_features, test_features, k)
    agreement = train_labels.to(found.device)[found] == test_labels.to(found.device)[:, None]
    return Look(
        principal_plane(test_features),
        found[queries.to(found.device)].cpu(),
        agreement.double().mean().item(),
        class_separation(test_features, test_labels),
    )


def nearest(train_features: Tensor, test_features: Tensor, k: int) -> Tensor:
    """(T, k), the training features of the highest cosine, the nearest first."""
    if not 1 <= k <= len(train_features):
        raise ValueError(f"k must be in [1, {len(train_features)}]; got {k}")
    keys = normalize(train_features.float(), dim=1)
    rows = [
        (normalize(part.float(), dim=1) @ keys.mT).topk(k, dim=1).indices
        for part in test_features.split(1024)
    ]
    return torch.cat(rows)


def principal_plane(features: Tensor) -> Plane:
    """Principal components of directions, as kNN sees features; the same for the same input.

    A component's sign is arbitrary: the largest loading is made positive.
    """
    if features.dim() != 2 or min(features.shape) < 2:
        raise ValueError(f"features must be (N, F), both >= 2; got {tuple(features.shape)}")
    if not features.isfinite().all():
        raise ValueError("features must be finite; some are not")
    directions = normalize(features.double().cpu(), dim=1)
    centred = directions - directions.mean(dim=0)
    variances, components = torch.linalg.eigh(centred.mT @ centred)
    first_two = components.flip(1)[:, :2]
    largest = first_two.gather(0, first_two.abs().argmax(dim=0, keepdim=True))
    coordinates = centred @ (first_two * torch.where(largest < 0, -1.0, 1.0))
    total = variances.clamp(min=0).sum().item()
    some = total > _NOTHING * len(features)
    share = variances[-2:].clamp(min=0).sum().item() / total if some else 0.0
    return Plane(coordinates, share)


def class_separation(features: Tensor, labels: Tensor) -> float:
    """The part of the variance of directions that lies between the means of classes, in [0, 1].

    With z of N directions, their mean m and the mean m_c of the n_c of class c:
    sum_c n_c |m_c - m|^2 / sum_i |z_i - m|^2; 0 if they are all the same.
    """
    directions = normalize(features.double().cpu(), dim=1)
    centred = directions - directions.mean(dim=0)
    total = centred.square().sum().item()
    members = (labels.cpu() == value for value in labels.cpu().unique())
    between = sum(
        int(chosen.sum()) * centred[chosen].mean(dim=0).square().sum().item() for chosen in members
    )
    return between / total if total > _NOTHING * len(features) else 0.0


def first_of_each_class(labels: Tensor, limit: int = 10) -> Tensor:
    """The first image of each class: a choice that nobody made after seeing the result."""
    chosen = [int((labels == value).nonzero()[0]) for value in labels.unique().tolist()[:limit]]
    return torch.tensor(chosen, dtype=torch.int64)
