"""Random parts of a training set, the same on every device: held out, or all the labels there are.

Each is stratified, and a pure function of the labels, the share and the seed.
"""

import torch
from torch import Tensor

from dsf.random import permutation

# The last word of the counter of random numbers: no other use of a seed has these.
_HELD_OUT, _FEW = 0x4E1D0175, 0xFE3D0175


def hold_out(
    labels: Tensor, share: float, seed: int, official: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sorted indices of a random part of the samples, and of the rest.

    Each class gives ``share`` of its samples, rounded, but at least one and not all of them; a
    class of one sample gives none. Where there is an official part, its indices are returned, and
    those of the rest.
    """
    if official is not None:
        return _official(labels, official)
    if not 0 < share < 1:
        raise ValueError(f"held_out must be in (0, 1); got {share!r}")
    counts = torch.bincount(labels.cpu())
    quota = _quota(counts, share).minimum(counts - 1).clamp_min(0)
    if not quota.any():
        raise ValueError(
            f"train_labels must have a class of two samples or more, to hold one out; "
            f"got {len(labels)} samples of {int((counts > 0).sum())} classes"
        )
    return _divide(labels, counts, quota, seed, _HELD_OUT)


def few_labels(labels: Tensor, share: float, seed: int) -> Tensor:
    """Sorted indices of the samples whose labels may be used: ``share`` of each class, in (0, 1].

    Rounded, but at least two of a class that has as many, so that one of them can be held out.
    """
    if not 0 < share <= 1:
        raise ValueError(f"labels, the share of them, must be in (0, 1]; got {share!r}")
    counts = torch.bincount(labels.cpu())
    quota = _quota(counts, share).clamp_min(2).minimum(counts)
    return _divide(labels, counts, quota, seed, _FEW)[0]


def _official(labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    chosen[rows.cpu()] = True
    if chosen.all() or not chosen.any():
        raise ValueError(
            f"validation must be a part of the {len(labels)} training samples; "
            f"got {int(chosen.sum())} of them"
        )
    held, rest = (mask.nonzero()[:, 0].to(labels.device) for mask in (chosen, ~chosen))
    return held, rest


def _quota(counts: Tensor, share: float) -> Tensor:
    return (share * counts.double()).round().long().clamp_min(1)


def _divide(
    labels: Tensor, counts: Tensor, quota: Tensor, seed: int, stream: int
) -> tuple[Tensor, Tensor]:
    on_cpu = labels.cpu()
    order = permutation(seed, torch.tensor(0), stream, torch.arange(len(labels)))
    order = order[on_cpu[order].argsort(stable=True)]  # by class, at random within one
    place = torch.arange(len(labels)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    chosen = place < quota.repeat_interleave(counts)
    first, second = (order[mask].sort().values.to(labels.device) for mask in (chosen, ~chosen))
    return first, second
