"""The form in which views pass from one operation to the next."""

from collections.abc import Callable

import torch
from torch import Tensor

from dsf.data.augment.fixed import per_view

Planes = tuple[Tensor, Tensor, Tensor]
"""Red, green and blue, each (V, height, width): bytes between operations, integers in float32
within. They are arrays of their own, so that a compiled operation that mixes the channels computes
each pixel once."""


Step = tuple[Callable[..., Planes], tuple[Tensor, ...]]
"""An operation on levels, and its parameters: tensors whose first dimension counts views. It takes
planes of integers in float32 and the parameters, and returns such planes."""


def apply_one(choice: Tensor, steps: dict[int, Step], planes: Planes) -> Planes:
    """Apply to each view the step that its (V,) choice names, if any, on bytes.

    On a GPU, and compiled, every step is computed for all views: to ask how many chose it would
    wait for the device, and shapes would change. In eager mode on the CPU asking is free.
    """
    if planes[0].device.type == "cpu" and not torch.compiler.is_compiling():
        return _apply_to_some(choice, steps, planes)
    result = planes
    for number, (operation, parameters) in steps.items():
        new = stored(operation(levels(planes), *parameters))
        chosen = per_view(choice == number)
        red, green, blue = (torch.where(chosen, *pair) for pair in zip(new, result, strict=True))
        result = red, green, blue
    return result


def apply_where(
    chosen: Tensor, operation: Callable[..., Planes], planes: Planes, *parameters: Tensor
) -> Planes:
    """Apply one operation to the chosen views, (V,) bool, and leave the others as they are."""
    return apply_one(chosen, {1: (operation, parameters)}, planes)


def _apply_to_some(choice: Tensor, steps: dict[int, Step], planes: Planes) -> Planes:
    rows = [planes]
    source = torch.arange(len(choice))
    count = len(choice)
    for number, (operation, parameters) in steps.items():
        index = (choice == number).nonzero()[:, 0]
        if len(index) > 0:
            part = levels(_each(planes, lambda x, index=index: x.index_select(0, index)))
            rows.append(stored(operation(part, *(x.index_select(0, index) for x in parameters))))
            source[index] = torch.arange(len(index)) + count
            count += len(index)
    if len(rows) == 1:
        return planes
    red, green, blue = (
        torch.cat(plane).index_select(0, source) for plane in zip(*rows, strict=True)
    )
    return red, green, blue


def levels(planes: Planes) -> Planes:
    """Planes as float32, to calculate with."""
    return _each(planes, lambda x: x.to(torch.float32))


def stored(planes: Planes) -> Planes:
    """Planes as bytes."""
    return _each(planes, lambda x: x.to(torch.uint8))


def _each(planes: Planes, function: Callable[[Tensor], Tensor]) -> Planes:
    red, green, blue = (function(plane) for plane in planes)
    return red, green, blue
