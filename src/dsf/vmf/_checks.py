"""Argument checks shared by the directional statistics.

Shapes, types and Python numbers are always checked. The *values* of a tensor are checked where
that is free of a device synchronisation: eagerly on the CPU. ``validate_args=True`` checks them
on every device, ``validate_args=False`` nowhere, as in ``torch.distributions``. Inside
``torch.compile``, under ``FakeTensorMode`` and inside ``torch.func`` values do not exist
and are never looked at.
"""

import math
import operator

import torch
from torch import Tensor


def check_dimension(p: int) -> int:
    """Return ``p`` as a Python int >= 2 (NumPy integers overflow silently further on)."""
    try:
        dimension = operator.index(p)
    except TypeError:
        dimension = 0
    if isinstance(p, bool) or dimension < 2:
        raise ValueError(f"p must be an int >= 2, the dimension of the sphere's space; got {p!r}")
    return dimension


def as_floating(name: str, value: Tensor | float) -> Tensor:
    """Return ``value`` as a float32 or float64 tensor; lower precisions become float32."""
    (tensor,) = together(**{name: value})
    return tensor


def together(**values: Tensor | float | None) -> list[Tensor]:
    """Return the arguments as float32 or float64 tensors of one shape, device and precision."""
    for name, value in values.items():
        real = is_number(value)
        if isinstance(value, Tensor):
            real = not value.is_complex() and value.dtype is not torch.bool
        if not real:
            got = value.dtype if isinstance(value, Tensor) else repr(value)
            raise ValueError(f"{name} must be a real tensor or number; got {got}")
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    floating = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    dtype = torch.promote_types(_widest(floating), torch.float32)
    device = tensors[0].device if tensors else None
    same = [
        value.to(dtype)
        if isinstance(value, Tensor)
        else torch.as_tensor(value, dtype=dtype, device=device)
        for value in values.values()
    ]
    if len(same) == 1:
        return same
    try:
        return list(torch.broadcast_tensors(*same))
    except RuntimeError as error:
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in zip(values, same, strict=True))
        raise ValueError(f"shapes do not broadcast: {shapes}") from error


def _widest(dtypes: set[torch.dtype]) -> torch.dtype:
    if not dtypes:
        return torch.get_default_dtype()
    return torch.float64 if torch.float64 in dtypes else torch.float32


def is_number(value: object) -> bool:
    """Whether ``value`` is a Python number (symbolic ones of the compiler included)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_range(
    name: str,
    value: Tensor,
    low: float,
    high: float,
    validate_args: bool | None,
    slack: float = 0.0,
) -> None:
    """Raise ValueError unless every element lies in [low, high], give or take ``slack``."""
    if not values_are_checked(value, validate_args):
        return
    inside = (value >= low - slack) & (value <= high + slack)
    if not inside.all():
        first = value[~inside].flatten()[0].item()
        wanted = f">= {low:g}" if math.isinf(high) else f"in [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {wanted} and not NaN; got {first}")


def values_are_checked(value: Tensor, validate_args: bool | None) -> bool:
    """Whether to look at the values of this tensor, by the rule at the top of this module."""
    if torch.compiler.is_compiling() or validate_args is False:
        return False
    concrete = type(value) in (Tensor, torch.nn.Parameter)
    if not concrete or torch._C._functorch.is_functorch_wrapped_tensor(value):
        return False
    return bool(validate_args) or value.device.type == "cpu"
