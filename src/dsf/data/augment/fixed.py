"""Arithmetic that gives the same bits on every device, in eager mode and compiled.

Compilers contract a * b + c into one rounding, and GPUs divide with an error of two units in the
last place; a level that lands on the other side of a threshold would then be another view. So
levels are integers held in float32, factors are multiples of 2^-14, and every sum and product of
them fits the 24 bits in which float32 is exact. What is left are divisions: by a constant they
are one multiplication, which all hardware rounds alike; by a variable they are ``divide``.
"""

import torch
from torch import Tensor

FACTOR_BITS = 14


def divide(numerator: Tensor, denominator: Tensor | float) -> Tensor:
    """floor(numerator / denominator) of integers >= 0 in float32, the numerator below 2^20.

    It takes the numerator's place. The half keeps quotients half a denominator's step away from
    integers, further than any hardware's division errs.
    """
    return numerator.add_(0.5).div_(denominator).floor_()


def fixed(value: float, bits: int) -> int:
    """The nearest multiple of 2^-bits, as an integer."""
    return int(value * 2**bits + (0.5 if value >= 0 else -0.5))


def as_float(integer: Tensor, bits: int) -> Tensor:
    """float32 of a fixed-point number of at most 24 bits."""
    return integer.to(torch.float32) * 2.0**-bits


def per_view(value: Tensor) -> Tensor:
    """(V,) as (V, 1, 1)."""
    return value[:, None, None]
