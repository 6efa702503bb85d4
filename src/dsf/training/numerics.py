"""The process-wide switches of a run, set for its time only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

Precision = Literal["bf16", "fp32", "fp64"]
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


@contextmanager
def numerics(precision: Precision, deterministic: bool, autotune: bool) -> Iterator[None]:
    """Determinism, cuDNN's search for the fastest algorithm, and where TF32 is used.

    ``precision="fp32"`` means it: cuDNN would round the factors of convolutions to 10 bits by
    default. With ``"bf16"``, which has 8, products in float32, those of the heads, may round so
    too; the losses' do not (:mod:`dsf.precision`).
    """
    cudnn: Any = torch.backends.cudnn
    products: Any = torch.backends.cuda.matmul
    before = (
        torch.are_deterministic_algorithms_enabled(),
        cudnn.deterministic,
        cudnn.benchmark,
        cudnn.conv.fp32_precision,
        products.fp32_precision,
    )
    if deterministic:
        # cuBLAS reads it when it starts; it repeats itself only with a workspace of fixed size.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    cudnn.deterministic, cudnn.benchmark = deterministic, autotune
    if precision != "bf16":
        cudnn.conv.fp32_precision = "ieee"
    products.fp32_precision = "tf32" if precision == "bf16" else "ieee"
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        cudnn.deterministic, cudnn.benchmark, cudnn.conv.fp32_precision = before[1:4]
        products.fp32_precision = before[4]
