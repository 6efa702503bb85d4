"""Losses: (B, m, D) features to a scalar, with nothing of networks in them."""

from dsf.losses.contrast import decoupled_info_nce, info_nce
from dsf.losses.cosine import CosineLoss, FeatureAverage, LossAverage
from dsf.losses.dsf import DSFLoss, DSFSimilarity

__all__ = [
    "CosineLoss",
    "DSFLoss",
    "DSFSimilarity",
    "FeatureAverage",
    "LossAverage",
    "decoupled_info_nce",
    "info_nce",
]
