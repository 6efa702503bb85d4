"""Which kernels the time of a GPU goes to."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "convolution": r"fprop|dgrad|wgrad|conv|implicit_gemm|nchw|nhwc",
    "matrix product": r"gemm|cutlass|nvjet|cublas|splitK",
    "optimiser and averages": r"multi_tensor|foreach|FusedSgd|FusedAdam",
    "copy or fill": r"Memcpy|Memset|FillFunctor|copy_kernel",
    "our own": r"^_(attend|gelu|add_norm|forward|backward|split)",
    "compiled, pointwise": r"^triton_poi",
    "compiled, with sums": r"^triton_",
}
"""Kinds of kernels, by a pattern in their names; the first that fits."""


class KernelCost(NamedTuple):
    """What one kind of kernel, or a single kernel, costs in a step.

    Attributes:
        kind: of ``KINDS``, "other", or "idle": the time when no kernel runs.
        name: of the kernel; empty for a whole kind.
        milliseconds: a step.
        calls: a step.
        share: of the step.
    """

    kind: str
    name: str
    milliseconds: float
    calls: float
    share: float


def kernel_costs(run: Callable[[], None], steps: int, most: int = 25) -> list[KernelCost]:
    """Run some steps, and add up what the GPU did from its first kernel to the last.

    Args:
        run: takes the steps and waits for them.
        steps: how many those are.
        most: how many single kernels to list after the kinds.
    """
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run()
    spans = [
        (event.time_range.start, event.time_range.end, event.name)
        for event in seen.events() or []
        if event.device_type == torch._C._autograd.DeviceType.CUDA
        and event.time_range.end > event.time_range.start
    ]
    return summarise(spans, steps, most)


def summarise(
    spans: list[tuple[float, float, str]], steps: int, most: int = 25
) -> list[KernelCost]:
    """Add up (start, end, name) of kernels, in microseconds."""
    if not spans:
        raise ValueError("the profiler saw no kernel on the GPU")
    whole = max(end for _, end, _ in spans) - min(start for start, _, _ in spans)
    kernels: dict[tuple[str, str], list[float]] = defaultdict(list)
    kinds: dict[str, list[float]] = defaultdict(list)
    for start, end, name in spans:
        kernels[kind(name), name].append(end - start)
        kinds[kind(name)].append(end - start)

    def cost(of: str, name: str, taken: list[float]) -> KernelCost:
        total = sum(taken)
        return KernelCost(of, name, total / steps / 1e3, len(taken) / steps, total / whole)

    idle = max(0.0, whole - _covered(spans))
    rows = [cost(of, "", taken) for of, taken in kinds.items()]
    rows.append(KernelCost("idle", "", idle / steps / 1e3, 0.0, idle / whole))
    single = [cost(of, name[:120], taken) for (of, name), taken in kernels.items()]
    by_time = sorted(single, key=lambda row: -row.milliseconds)[:most]
    return sorted(rows, key=lambda row: -row.milliseconds) + by_time


def kind(name: str) -> str:
    """Of ``KINDS``, or "other"."""
    return next((of for of, pattern in KINDS.items() if re.search(pattern, name)), "other")


def _covered(spans: list[tuple[float, float, str]]) -> float:
    """How long at least one kernel ran."""
    total, reached = 0.0, float("-inf")
    for start, end, _ in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
