"""Train a linear layer for a few steps, in one process or in several; run by two_processes."""

from typing import get_args

import torch

from dsf import distributed, losses
from dsf.losses.dsf import Divergence

BATCH, VIEWS, WIDTH, DIMENSION, STEPS = 8, 3, 10, 6, 5
LOSSES = {
    "cosine": (losses.CosineLoss, {}),
    "feature-average": (losses.FeatureAverage, {}),
    "loss-average": (losses.LossAverage, {"views": VIEWS}),
    "poly-view-arithmetic": (losses.PolyView, {"views": VIEWS, "pooling": "arithmetic"}),
    "poly-view-geometric": (losses.PolyView, {"views": VIEWS, "pooling": "geometric"}),
    "poly-view-blocks": (losses.PolyView, {"views": VIEWS, "block_size": 5}),
    "dsf": (losses.DSFLoss, {}),
    "dsf-mean-kappa": (losses.DSFLoss, {"queue_kappa": "batch-mean"}),
    "loss-average-blocks": (losses.LossAverage, {"views": VIEWS, "block_size": 3}),
    "dsf-blocks": (losses.DSFLoss, {"block_size": 5}),
    "dsf-literal": (losses.DSFLoss, {"mode": "literal", "estimator": "mle"}),
} | {
    f"dsf-{divergence}": (losses.DSFLoss, {"mode": "exact", "divergence": divergence})
    for divergence in get_args(Divergence)
}
SETTINGS = {
    "both": {},
    "cross": {"in_batch": "cross"},
    "dcl": {"contrast": "dcl"},
    "queue": {"memory_bank_size": (12, DIMENSION)},
}
CASES = [f"{name}/{setting}" for name in LOSSES for setting in SETTINGS]


def make_loss(case: str) -> torch.nn.Module:
    name, setting = case.split("/")
    kind, options = LOSSES[name]
    torch.manual_seed(1)
    return kind(gather_distributed=True, **options, **SETTINGS[setting]).double()


def train(case: str) -> dict[str, torch.Tensor]:
    size, rank = distributed.world_size(), distributed.rank()
    views = 1 if case.startswith("cosine") else VIEWS
    loss = make_loss(case)
    generator = torch.Generator().manual_seed(0)
    layer = torch.randn(WIDTH, DIMENSION, generator=generator, dtype=torch.float64)
    layer.requires_grad_()
    share = slice(rank, None, size)  # as samples are dealt out in training
    result = {}
    for step in range(STEPS):
        shape = (2, BATCH, views, WIDTH)
        data = torch.randn(shape, generator=generator, dtype=torch.float64)[:, share]
        value = loss(data[0] @ layer, data[1] @ layer)
        (gradient,) = torch.autograd.grad(value, layer)
        gradient = distributed.mean(gradient)
        result[f"loss{step}"] = distributed.mean(value)
        result[f"gradient{step}"] = gradient
        with torch.no_grad():
            layer -= 0.5 * gradient
    result["layer"] = layer.detach()
    return result | {name: buffer.clone() for name, buffer in loss.named_buffers()}
