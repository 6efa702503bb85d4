"""The form in which views pass from one operation to the next."""

from collections.abc import Callable

import torch
from torch import Tensor

from dsf.data.augment.fixed import per_view

Planes = tuple[Tensor, Tensor, Tensor]
"""Red, green and blue, each (V, height, width): bytes between operations, integers in float32
within. They are arrays of their own, so that a compiled operation that mixes the channels computes
each pixel once."""


def apply_where(
    chosen: Tensor, operation: Callable[..., Planes], planes: Planes, *parameters: Tensor
) -> Planes:
    """Apply an operation on levels to the chosen views, and leave the others as they are.

    Args:
        chosen: (V,) bool.
        operation: takes planes of integers in float32 and the parameters, and returns such planes.
        planes: bytes.
        parameters: tensors whose first dimension counts views.

    On a GPU, and compiled, the operation is computed for all views: to ask how many are chosen
    would wait for the device, and shapes would change. In eager mode on the CPU asking is free.
    """
    if planes[0].device.type == "cpu" and not torch.compiler.is_compiling():
        index = chosen.nonzero()[:, 0]
        if len(index) == 0:
            return planes
        part = _each(planes, lambda x: x.index_select(0, index))
        part = operation(levels(part), *(x.index_select(0, index) for x in parameters))
        new = iter(stored(part))
        # Of all ways to put rows back, this one moves whole rows at once.
        source = torch.arange(len(chosen))
        source[index] = torch.arange(len(index)) + len(chosen)
        return _each(planes, lambda x: torch.cat([x, next(new)]).index_select(0, source))
    new = iter(stored(operation(levels(planes), *parameters)))
    return _each(planes, lambda x: torch.where(per_view(chosen), next(new), x))


def levels(planes: Planes) -> Planes:
    """Planes as float32, to calculate with."""
    return _each(planes, lambda x: x.to(torch.float32))


def stored(planes: Planes) -> Planes:
    """Planes as bytes."""
    return _each(planes, lambda x: x.to(torch.uint8))


def _each(planes: Planes, function: Callable[[Tensor], Tensor]) -> Planes:
    red, green, blue = (function(plane) for plane in planes)
    return red, green, blue
