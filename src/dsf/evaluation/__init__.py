"""From an encoder to numbers: how good its features are."""

from dsf.evaluation.features import extract
from dsf.evaluation.knn import KNNResult, knn
from dsf.evaluation.linear import LinearResult, choose_weight_decay, hold_out, linear_fast

__all__ = [
    "KNNResult",
    "LinearResult",
    "choose_weight_decay",
    "extract",
    "hold_out",
    "knn",
    "linear_fast",
]
