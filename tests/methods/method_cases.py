"""Train methods for a few steps, in one process or, with DDP, in several; run by two_processes."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dsf import distributed, losses
from dsf.methods import MoCo, MoCoV3, SimCLR
from dsf.models import split_batch_norm

IMAGES, VIEWS, DIMENSION, STEPS, SPLITS = 32, 2, 6, 5, 8
LOSSES = {
    "cosine": (losses.CosineLoss, {}),
    "feature-average": (losses.FeatureAverage, {}),
    "loss-average": (losses.LossAverage, {"views": VIEWS}),
    "dsf": (losses.DSFLoss, {}),
    "dsf-mean-kappa": (losses.DSFLoss, {"queue_kappa": "batch-mean"}),
    "dsf-exact": (losses.DSFLoss, {"mode": "exact"}),
    "dcl": (losses.DSFLoss, {"contrast": "dcl"}),
}
BANK = {"memory_bank_size": (72, DIMENSION)}  # no whole batches, so that their order matters
METHODS = {
    "simclr": (SimCLR, {}, {}),
    "moco": (MoCo, {"momentum": 0.9}, BANK),
    "moco-symmetric": (MoCo, {"momentum": 0.9, "symmetric": True}, BANK),
    "moco-local": (MoCo, {"momentum": 0.9, "shuffle": "local"}, BANK),
    "mocov3": (
        MoCoV3,
        {"momentum": 0.9, "momentum_steps": 2 * STEPS, "hidden": 12},
        {"in_batch": "cross"},
    ),
}
# The same with local views, whose number times two processes divides the splits.
LOCAL = 4
CROPS = ("simclr", "moco", "moco-symmetric", "mocov3")
NORMS = ("group", "split")
CASES = [
    f"{method}/{loss}/{norm}"
    for method in METHODS
    for loss in LOSSES
    for norm in NORMS
    # A local order makes groups of its own: only without groups is it the same in one process.
    if not (method == "moco-local" and norm == "split")
]
CASES += [
    f"{method}+crops/{loss}/split"
    for method in CROPS
    for loss in ("dsf", "loss-average", "feature-average")
]


class Encoder(nn.Sequential):
    num_features = 12

    def __init__(self, norm: str) -> None:
        super().__init__(
            nn.Conv2d(3, 12, 3, stride=2),
            nn.GroupNorm(3, 12) if norm == "group" else nn.BatchNorm2d(12),
            nn.Tanh(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )


def make_method(case: str) -> nn.Module:
    method, loss, norm = case.replace("+crops", "").split("/")
    make_loss, loss_options = LOSSES[loss]
    make, options, setting = METHODS[method]
    torch.manual_seed(1)
    heads = {"projector": "mlp"} if norm == "group" else {}
    if norm == "group" and make is MoCoV3:
        heads |= {"predictor": "mlp"}
    result = make(
        Encoder(norm),
        make_loss(gather_distributed=True, **loss_options, **setting),
        dimension=DIMENSION,
        **heads,
        **options,
    ).double()
    return split_batch_norm(result, SPLITS // distributed.world_size())


def train(case: str) -> dict[str, torch.Tensor]:
    size, rank = distributed.world_size(), distributed.rank()
    views = 2 * (1 if "cosine" in case else VIEWS)
    method = make_method(case)
    wrapped = method if size == 1 else DistributedDataParallel(method, broadcast_buffers=False)
    trained = [parameter for parameter in method.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    result = {}
    for step in range(STEPS):
        shape = (IMAGES, views, 3, 8, 8)
        images = torch.randn(shape, generator=generator, dtype=torch.float64)
        local = None
        if "+crops" in case:
            shape = (IMAGES, LOCAL, 3, 6, 6)
            local = torch.randn(shape, generator=generator, dtype=torch.float64)[rank::size]
        output = wrapped(images[rank::size], local=local)
        optimiser.zero_grad()
        output.loss.backward()
        optimiser.step()
        method.after_step()
        result[f"loss{step}"] = distributed.mean(output.loss)
    result |= {f"gradient.{i}": parameter.grad for i, parameter in enumerate(trained)}
    result |= {
        f"parameter.{name}": parameter.detach().clone()
        for name, parameter in method.named_parameters()
    }
    return result | {
        f"queue.{name.rpartition('.')[2]}": buffer.clone()
        for name, buffer in method.loss.named_buffers()
    }
