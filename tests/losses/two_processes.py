"""Train a linear layer for a few steps, in one process or in several; run by test_distributed."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file

from dsf import distributed, losses

BATCH, VIEWS, WIDTH, DIMENSION, STEPS = 8, 3, 10, 6, 5
CASES = {
    f"{name}-{setting}": (name, options)
    for name in ("CosineLoss", "FeatureAverage", "LossAverage", "DSFLoss", "DSFLoss-mean")
    for setting, options in {
        "both": {},
        "cross": {"in_batch": "cross"},
        "dcl": {"contrast": "dcl"},
        "queue": {"memory_bank_size": (12, DIMENSION)},
    }.items()
}


def make_loss(case: str) -> torch.nn.Module:
    name, options = CASES[case]
    name, _, variant = name.partition("-")
    options = dict(options)
    if variant:
        options["queue_kappa"] = "batch-mean"
    if name == "LossAverage" and "memory_bank_size" in options:
        options["views"] = VIEWS
    torch.manual_seed(1)
    return getattr(losses, name)(gather_distributed=True, **options).double()


def train(case: str) -> dict[str, torch.Tensor]:
    size, rank = distributed.world_size(), distributed.rank()
    views = 1 if case.startswith("CosineLoss") else VIEWS
    loss = make_loss(case)
    generator = torch.Generator().manual_seed(0)
    layer = torch.randn(WIDTH, DIMENSION, generator=generator, dtype=torch.float64)
    layer.requires_grad_()
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
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


def worker(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store{size}", rank=rank, world_size=size
    )
    results = {}
    for case in CASES:
        results |= {f"{case}/{name}": value for name, value in train(case).items()}
    save_file(results, os.path.join(folder, f"{size}-{rank}.safetensors"))
    dist.destroy_process_group()


if __name__ == "__main__":
    size, folder = int(sys.argv[1]), sys.argv[2]
    mp.spawn(worker, args=(size, folder), nprocs=size)
