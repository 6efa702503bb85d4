"""Losses: (B, m, D) features to a scalar, with nothing of networks in them."""

from dsf.losses._base import ContrastiveLoss, Diagnostics
from dsf.losses.contrast import decoupled_info_nce, info_nce
from dsf.losses.cosine import CosineLoss, FeatureAverage, LossAverage
from dsf.losses.dsf import DSFLoss, DSFSimilarity
from dsf.losses.polyview import PolyView

__all__ = [
    "ContrastiveLoss",
    "CosineLoss",
    "DSFLoss",
    "DSFSimilarity",
    "Diagnostics",
    "FeatureAverage",
    "LossAverage",
    "PolyView",
    "decoupled_info_nce",
    "info_nce",
]
