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
        plane: of the test images, or of training images where there are none.
        neighbours: (Q, k), the training images nearest to the query images.
        agreement: the share of the k nearest training images, over all these images, that have
            the class of the image.
        separation: the part of the variance of these images' features that lies between the
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
    own: Tensor | None = None,
) -> Look:
    """Look at an encoder through its features.

    Args:
        train_features: (N, F).
        train_labels: (N,).
        test_features: (T, F).
        test_labels: (T,).
        queries: (Q,), the test images whose neighbours are wanted.
        k: how many neighbours.
        own: (T,), where the test images are training images, which of them: none is its own
            neighbour.
    """
    found = nearest(train_features, test_features, k, own)
    agreement = train_labels.to(found.device)[found] == test_labels.to(found.device)[:, None]
    return Look(
        principal_plane(test_features),
        found[queries.to(found.device)].cpu(),
        agreement.double().mean().item(),
        class_separation(test_features, test_labels),
    )


def nearest(
    train_features: Tensor, test_features: Tensor, k: int, own: Tensor | None = None
) -> Tensor:
    """(T, k), the training features of the highest cosine, the nearest first.

    ``own``, (T,), says which training features the test features are, if any: they are left out.
    """
    most = len(train_features) - (own is not None)
    if not 1 <= k <= most:
        raise ValueError(f"k must be in [1, {most}]; got {k}")
    keys = normalize(train_features.float(), dim=1)
    rows = []
    for places in torch.arange(len(test_features), device=keys.device).split(1024):
        cosines = normalize(test_features[places].float(), dim=1) @ keys.mT
        if own is not None:
            cosines.scatter_(1, own.to(keys.device)[places, None], -torch.inf)
        rows.append(cosines.topk(k, dim=1).indices)
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
