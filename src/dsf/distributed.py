"""The one place that talks to ``torch.distributed``; everything here also works without it."""

import inspect
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.parallel import DistributedDataParallel

PATIENCE = timedelta(hours=6)
"""How long processes wait for one: the first evaluates, and saves, while the others wait."""


def world_size() -> int:
    """The number of processes that train together; 1 without ``torch.distributed``."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The index of this process among them."""
    return dist.get_rank() if world_size() > 1 else 0


def gather(tensor: Tensor) -> Tensor:
    """Concatenate the tensors of all processes along the first dimension, with gradients.

    Every process must bring the same shape. The gradient is *summed* over processes: with the
    gradients of parameters averaged, as DDP does, it is then the gradient of the mean loss. It has
    no second derivatives.
    """
    if world_size() == 1:
        return tensor
    result: Tensor = _Gather.apply(tensor)
    return result


def interleave(gathered: Tensor) -> Tensor:
    """What :func:`gather` gave in the order of the batch that was dealt out to the processes.

    Entry j of rank r of n is the (j n + r)-th.
    """
    size = world_size()
    if size == 1:
        return gathered
    parts: Tensor = gathered.unflatten(0, (size, -1))
    return parts.transpose(0, 1).flatten(0, 1)


def mean(tensor: Tensor) -> Tensor:
    """The mean of a tensor over processes, without gradients."""
    if world_size() == 1:
        return tensor.detach()
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total / world_size()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.size = tensor.shape[0]
        parts = [torch.empty_like(tensor) for _ in range(world_size())]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[rank() * ctx.size : (rank() + 1) * ctx.size]


def place(device: str) -> torch.device:
    """This process's device: of several GPUs of a machine each process has one."""
    if device != "cuda":
        return torch.device(device)
    own = torch.device(device, int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(own)
    return own


def start(device: str) -> torch.device:
    """Join the processes that torchrun started, if it did; returns this process's device."""
    own = place(device)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not dist.is_initialized():
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
    return own


def launched() -> tuple[int, int]:
    """The rank and the number of processes that torchrun started, joined or not."""
    if world_size() > 1:
        return rank(), world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def parallel(module: nn.Module, device: torch.device) -> DistributedDataParallel:
    """A module whose gradients are averaged over processes.

    Its buffers are not broadcast in forward: the statistics of BatchNorm are each process's own,
    and a queue that gathers is the same in all.
    """
    known = inspect.signature(DistributedDataParallel).parameters
    new = "forward_sync_buffers" in known  # its name in newer versions of torch
    options = {"forward_sync_buffers" if new else "broadcast_buffers": False}
    devices = [device] if device.type == "cuda" else None
    return DistributedDataParallel(module, device_ids=devices, **options)  # type: ignore[arg-type]


def lost_another(error: RuntimeError) -> bool:
    """Whether an error says that another process is gone, or did not come in time."""
    signs = ("onnection", "Timed out waiting")
    of_gloo = world_size() > 1 and any(sign in str(error) for sign in signs)
    return isinstance(error, dist.DistError) or of_gloo


def stop() -> None:
    """Leave the other processes."""
    if world_size() > 1:
        dist.destroy_process_group()


def agree(*flags: bool, device: torch.device | str = "cpu") -> list[bool]:
    """For each flag whether any process has it set; all must ask at the same time."""
    return [bool(vote) for vote in largest(*flags, device=device)]


def largest(*numbers: int, device: torch.device | str = "cpu") -> list[int]:
    """Each number's largest value in any process; all must ask at the same time."""
    if world_size() == 1:
        return list(numbers)
    found = torch.tensor(numbers, dtype=torch.int64, device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [int(number) for number in found.tolist()]


def wait(device: torch.device | str = "cpu") -> None:
    """Wait until all processes are here."""
    agree(True, device=device)
