"""Numbers about features on the sphere, and about ranks."""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dsf.precision import matmul

# Distances held at a time: 256 MiB in float32.
_BLOCK = 2**26


def pair_distances(views: Tensor) -> Tensor:
    """(N,), the mean squared distance of two different views of each image.

    Over images this is the alignment of Wang and Isola (2020) with alpha = 2, in [0, 4], the lower
    the better. With M unit vectors of mean length R it is 2 - 2 (M R^2 - 1) / (M - 1).

    Args:
        views: (N, M, D), M >= 2, not normalised.

    Example:
        >>> pair_distances(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]))
        tensor([2.])
    """
    count = views.shape[1]
    units = normalize(views, dim=-1)
    # M (1 - R^2) is the sum of squared distances from the mean, without cancellation.
    spread = (units - units.mean(dim=1, keepdim=True)).square().sum(dim=(1, 2))
    return 2 * spread / (count - 1)


def uniformity(features: Tensor) -> float:
    """log mean exp(-2 |f_i - f_j|^2) over all pairs i != j (Wang and Isola, 2020).

    0 if all features coincide; the lower, the more evenly they cover the sphere.

    Args:
        features: (N, D), N >= 2, not normalised.
    """
    count = len(features)
    if count < 2:
        raise ValueError(f"features must be of two images or more; got {count}")
    units = normalize(features, dim=1)
    total = torch.zeros((), dtype=torch.float64, device=units.device)
    for rows in units.split(max(1, _BLOCK // count)):
        # |f_i - f_j|^2 = 2 - 2 f_i . f_j
        total += (4 * (matmul(rows, units.T) - 1)).exp_().sum(dtype=torch.float64)
    return ((total - count) / (count * (count - 1))).clamp_min(1e-300).log().item()


def effective_rank(features: Tensor) -> float:
    """exp of the entropy of the singular values as shares of their sum (Roy and Vetterli, 2007).

    Of the normalised features less their mean: between 1 and D, the number of directions that
    features make use of.

    Args:
        features: (N, D), not normalised.
    """
    units = normalize(features.double(), dim=1)
    centred = units - units.mean(dim=0)
    # Of the smaller Gram matrix: its eigenvalues are the squares.
    small = centred.T @ centred if len(centred) > centred.shape[1] else centred @ centred.T
    values = torch.linalg.eigvalsh(small).clamp_min(0).sqrt()
    shares = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    entropy = torch.special.entr(shares).sum().item()
    return math.exp(entropy)


def class_separation(features: Tensor, labels: Tensor) -> float:
    """R^2 = 1 - d_within / d_total of cosine distances (Kornblith et al., 2021).

    d_within is the mean of 1 - cos over pairs of the same class, d_total over all pairs, classes
    weighing the same. 0: classes are no tighter than the whole; 1: each class is one point. With
    the mean unit vector m_c of each of C classes it is 1 - (1 - mean |m_c|^2) / (1 - |mean m_c|^2).

    Args:
        features: (N, D), not normalised.
        labels: (N,).
    """
    units = normalize(features.double(), dim=1)
    present, places = labels.to(units.device).unique(return_inverse=True)
    sums = units.new_zeros(len(present), units.shape[1]).index_add_(0, places, units)
    means = sums / torch.bincount(places)[:, None]
    within = 1 - means.square().sum(dim=1).mean()
    total = 1 - means.mean(dim=0).square().sum()
    if total < 1e-12:  # all features coincide, but for rounding
        return 0.0
    return (1 - within / total).item()


def auroc(scores: Tensor, positive: Tensor) -> float:
    """The probability that a positive has a higher score than a negative; ties count a half.

    Args:
        scores: (N,).
        positive: (N,) bool, of both kinds.

    Example:
        >>> auroc(torch.tensor([3.0, 1.0, 2.0, 2.0]), torch.tensor([True, False, True, False]))
        0.875
    """
    count = int(positive.sum())
    rest = len(positive) - count
    if not count or not rest:
        raise ValueError(f"positive must have both kinds; got {count} of {len(positive)}")
    total = ranks(scores[None])[0][positive].sum().item()
    return (total - count * (count + 1) / 2) / (count * rest)


def spearman(first: Tensor, second: Tensor) -> Tensor:
    """(N,) rank correlations of the rows of (N, K) tensors; 0 where all values of a row are equal.

    Example:
        >>> spearman(torch.tensor([[1, 2, 3]]), torch.tensor([[9.0, 5.0, 1.0]])).round()
        tensor([-1.], dtype=torch.float64)
    """
    centred = [ranks(values) for values in (first, second)]
    centred = [values - values.mean(dim=1, keepdim=True) for values in centred]
    product = (centred[0] * centred[1]).sum(dim=1)
    lengths = centred[0].norm(dim=1) * centred[1].norm(dim=1)
    return torch.where(lengths > 0, product / lengths.clamp_min(1e-300), 0.0)


def ranks(values: Tensor) -> Tensor:
    """The ranks within each row of (N, K), from 1, ties sharing their mean; float64."""
    ordered, order = values.sort(dim=1)
    ordered = ordered.contiguous()
    first = torch.searchsorted(ordered, ordered, side="left")
    last = torch.searchsorted(ordered, ordered, side="right")
    mean = (first + last + 1).double() / 2
    return torch.empty_like(mean).scatter_(1, order, mean)
