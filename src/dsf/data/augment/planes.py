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


_CACHED = 1 << 18  # pixels of a plane that an operation takes at a time, to stay in the cache


def apply_one(choice: Tensor, steps: dict[int, Step], planes: Planes) -> Planes:
    """Apply to each view the step that its (V,) choice names, if any, on bytes.

    On a GPU, and compiled, every step is computed for all views: to ask how many chose it would
    wait for the device, and shapes would change. In eager mode on the CPU asking is free.
    """
    if eager_on_cpu(planes[0]):
        return _apply_to_some(choice, steps, planes)
    for number, (operation, parameters) in steps.items():
        # One after the other: compiled, that fuses better than all from the same input.
        after = stored(operation(levels(planes), *parameters))
        chosen = per_view(choice == number)
        red, green, blue = (torch.where(chosen, *x) for x in zip(after, planes, strict=True))
        planes = red, green, blue
    return planes


def apply_where(
    chosen: Tensor, operation: Callable[..., Planes], planes: Planes, *parameters: Tensor
) -> Planes:
    """Apply one operation to the chosen views, (V,) bool, and leave the others as they are."""
    return apply_one(chosen, {1: (operation, parameters)}, planes)


def _apply_to_some(choice: Tensor, steps: dict[int, Step], planes: Planes) -> Planes:
    rows = [planes]
    source = torch.arange(len(choice))
    count = len(choice)
    few = max(1, _CACHED // planes[0][0].numel())
    for number, (operation, parameters) in steps.items():
        every = (choice == number).nonzero()[:, 0]
        for index in every.split(few) if len(every) else ():
            red, green, blue = (plane.index_select(0, index) for plane in planes)
            some = [parameter.index_select(0, index) for parameter in parameters]
            rows.append(stored(operation(levels((red, green, blue)), *some)))
            source[index] = torch.arange(len(index)) + count
            count += len(index)
    if len(rows) == 1:
        return planes
    red, green, blue = (torch.cat(x).index_select(0, source) for x in zip(*rows, strict=True))
    return red, green, blue


def eager_on_cpu(tensor: Tensor) -> bool:
    """Whether its values may be looked at without waiting for a device or breaking a graph."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def levels(planes: Planes) -> Planes:
    """Planes as float32, to calculate with."""
    red, green, blue = (plane.to(torch.float32) for plane in planes)
    return red, green, blue


def stored(planes: Planes) -> Planes:
    """Planes as bytes."""
    red, green, blue = (plane.to(torch.uint8) for plane in planes)
    return red, green, blue
