"""Multinomial logistic regression, for several weight decays at the same time."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dsf.precision import matmul

# Logits held at a time: 256 MiB in float32.
_BLOCK = 2**26
# Steps between two looks at the gradient, each of which waits for the device.
_LOOK = 10


class Classifiers(NamedTuple):
    """S linear classifiers of standardised features.

    Args:
        mean: (F,), subtracted from the features.
        std: (F,), what they are divided by then.
        weight: (S, C, F).
        bias: (S, C).
        steps: how many were taken.
        gradient: (S,), the length of the objective's gradient at the end.
    """

    mean: Tensor
    std: Tensor
    weight: Tensor
    bias: Tensor
    steps: int
    gradient: Tensor

    def logits(self, features: Tensor) -> Tensor:
        """(N, S, C) of (N, F)."""
        standard = (features - self.mean) / self.std
        product = matmul(standard, self.weight.flatten(0, 1).T)
        return product.view(len(features), *self.bias.shape) + self.bias

    def predict(self, features: Tensor) -> Tensor:
        """The (N, S) most likely classes, without storing all logits at once."""
        rows = features.split(max(1, _BLOCK // self.bias.numel()))
        return torch.cat([self.logits(part).argmax(dim=-1) for part in rows])


def fit(
    features: Tensor,
    labels: Tensor,
    classes: int,
    weight_decays: Sequence[float],
    tolerance: float,
    max_steps: int,
) -> Classifiers:
    """Minimise mean cross-entropy + weight_decay / 2 * |weight|^2 for each weight decay.

    The features are standardised first, by their own means and deviations; the bias is free.

    The Hessian of the cross-entropy is at most half the covariance of the features for each class
    (Boehning, 1992), so that a step by the inverse of covariance / 2 + weight_decay always goes
    down and needs no learning rate. In the eigenbasis of the covariance that inverse is diagonal
    for all weight decays, and one product with the features moves all classifiers. Nesterov's
    momentum accelerates it, and is dropped for a classifier whose step goes uphill (O'Donoghue and
    Candes, 2015). A classifier that has arrived is set aside.

    Args:
        features: (N, F), float32 or float64.
        labels: (N,) int64 in [0, classes).
        classes: C.
        weight_decays: S numbers > 0.
        tolerance: a classifier has arrived when its gradient is shorter than this.
        max_steps: stop at the latest then.
    """
    mean, std = _statistics(features)
    spread, basis = _eigenbasis(features, mean, std)
    # The bias is the weight of a feature that is always 1, which does not correlate with others.
    rotated = features.new_ones(len(features), len(spread) + 1)
    size = _block_size(features)
    for target, rows in zip(rotated.split(size), features.split(size), strict=True):
        target[:, :-1] = matmul((rows - mean) / std, basis)
    spread = torch.cat([spread, torch.ones_like(spread[:1])])
    decay = spread.new_tensor(weight_decays)[:, None, None].repeat(1, 1, len(spread))
    decay[..., -1] = 0
    inverse = 1 / (spread / 2 + decay)

    weight = features.new_zeros(len(weight_decays), classes, len(spread))
    arrived, lengths = weight.clone(), weight.new_zeros(len(weight_decays))
    under_way = torch.arange(len(weight_decays), device=weight.device)
    ahead, momentum = weight, torch.ones_like(decay[..., :1])
    for step in range(1, max_steps + 1):
        gradient = _gradient(rotated, labels, ahead) + decay * ahead
        lower = ahead - inverse * gradient
        moved = lower - weight
        uphill = (gradient * moved).sum(dim=(1, 2), keepdim=True) > 0
        momentum = momentum.masked_fill(uphill, 1)
        following = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        ahead = lower + (momentum - 1) / following * moved
        weight, momentum = lower, following
        if step % _LOOK == 0 or step == max_steps:
            length = gradient.flatten(1).norm(dim=1)
            arrived[under_way], lengths[under_way] = weight, length
            far = (length >= tolerance).nonzero()[:, 0]
            if len(far) == 0:
                break
            under_way, weight, ahead, momentum, decay, inverse = (
                tensor[far] for tensor in (under_way, weight, ahead, momentum, decay, inverse)
            )
    weight = matmul(arrived[..., :-1], basis.T)
    return Classifiers(mean, std, weight, arrived[..., -1], step, lengths)


def _statistics(features: Tensor) -> tuple[Tensor, Tensor]:
    blocks = features.split(_block_size(features))  # torch copies to float64 what it sums so
    mean = sum(rows.sum(dim=0, dtype=torch.float64) for rows in blocks) / len(features)
    centre = mean.to(features.dtype)
    lengths = [
        torch.linalg.vector_norm(rows - centre, dim=0, dtype=torch.float64) for rows in blocks
    ]
    length = torch.linalg.vector_norm(torch.stack(lengths), dim=0)
    # Rounding errors of a constant feature must not be blown up to deviations of 1.
    constant = features.amax(dim=0) == features.amin(dim=0)
    std = (length / len(features) ** 0.5).masked_fill(constant, 1)
    return centre, std.to(features.dtype)


def _block_size(features: Tensor) -> int:
    """How many rows of (N, F) may be copied at a time: copies of all would take the most memory."""
    return max(1, _BLOCK // (2 * features.shape[1]))


def _eigenbasis(features: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues (F,) and eigenvectors (F, F) of the standardised covariance, in float64."""
    width = features.shape[1]
    covariance = features.new_zeros(width, width, dtype=torch.float64)
    for rows in features.split(_block_size(features)):
        standard = ((rows - mean) / std).double()
        covariance.addmm_(standard.T, standard)
    values, vectors = torch.linalg.eigh(covariance / len(features))
    return values.clamp_min(0).to(features.dtype), vectors.to(features.dtype)


def _gradient(features: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Of the mean cross-entropy with respect to (S, C, F) weights."""
    settings, classes, _ = weight.shape
    flat = weight.flatten(0, 1)
    total = torch.zeros_like(flat)
    every = torch.arange(classes, device=labels.device)
    size = max(1, _BLOCK // len(flat))
    for rows, targets in zip(features.split(size), labels.split(size), strict=True):
        excess = matmul(rows, flat.T).view(-1, settings, classes).softmax(dim=-1)
        excess -= (targets[:, None] == every).to(excess.dtype)[:, None]
        total += matmul(excess.flatten(1).T, rows)
    return (total / len(features)).view_as(weight)
