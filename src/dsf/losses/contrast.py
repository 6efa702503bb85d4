"""From similarities to a loss: InfoNCE and its decoupled form."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def info_nce(logits: Tensor, positives: Tensor) -> Tensor:
    """-log softmax of the positive, averaged over rows. A constant added to a row is nothing to it.

    Args:
        logits: (..., N, M) similarities over temperature; -inf leaves an entry out.
        positives: (N,) the column of each row's positive.
    """
    rows, columns = _flatten(logits, positives)
    if rows.dtype is torch.float64:  # of which torch's log_softmax has 8 digits on some CPUs
        positive = rows.gather(-1, columns.unsqueeze(-1)).squeeze(-1)
        return (rows.logsumexp(dim=-1) - positive).mean()
    return cross_entropy(rows, columns)


def decoupled_info_nce(logits: Tensor, positives: Tensor) -> Tensor:
    """InfoNCE without the positive in the denominator (DCL, Yeh et al., 2022); same arguments."""
    rows, columns = _flatten(logits, positives)
    positive = rows.gather(-1, columns.unsqueeze(-1)).squeeze(-1)
    negatives = rows.scatter(-1, columns.unsqueeze(-1), -torch.inf)
    return (negatives.logsumexp(dim=-1) - positive).mean()


def _info_nce_of_excess(excess: Tensor) -> Tensor:
    return torch.logaddexp(excess, torch.zeros_like(excess)).mean()


CONTRASTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "infonce": info_nce,
    "dcl": decoupled_info_nce,
}
# The same of log sum exp over the negatives alone less the positive logit.
OF_EXCESS: dict[str, Callable[[Tensor], Tensor]] = {
    "infonce": _info_nce_of_excess,
    "dcl": torch.mean,
}


def _flatten(logits: Tensor, positives: Tensor) -> tuple[Tensor, Tensor]:
    if logits.dim() < 2 or positives.shape != logits.shape[-2:-1] or 0 in logits.shape:
        raise ValueError(
            "logits must have shape (..., N, M) and positives (N,), none empty; "
            f"got {tuple(logits.shape)} and {tuple(positives.shape)}"
        )
    rows = logits.flatten(0, -2)
    return rows, positives.repeat(len(rows) // len(positives))
