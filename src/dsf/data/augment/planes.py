"""The form in which views pass from one operation to the next."""

from collections.abc import Callable

import torch
from torch import Tensor

from dsf.data.augment.fixed import per_view

Planes = tuple[Tensor, Tensor, Tensor]
"""Red, green and blue, each (V, height, width): integers in float32 within an operation, bytes
between them, or float32 there too where ``eager_on_cpu``. They are arrays of their own, so that a
compiled operation that mixes the channels computes each pixel once."""

Step = tuple[Callable[..., Planes], tuple[Tensor, ...]]
"""An operation on levels, and its parameters: tensors whose first dimension counts views. It takes
planes of integers in float32, which it may overwrite, and the parameters, and returns such
planes."""


_CACHED = 1 << 16  # pixels of a plane that an operation takes at a time, to stay in the cache


def apply_one(choice: Tensor, steps: dict[int, Step], planes: Planes) -> Planes:
    """Apply to each view the step that its (V,) choice names, if any.

    On a GPU, and compiled, every step is computed for all views: to ask how many chose it would
    wait for the device, and shapes would change. In eager mode on the CPU asking is free, and what
    takes time is to convert and copy: there planes become float32, and are changed in place if
    they already are.
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
    planes = levels(planes)
    few = max(1, _CACHED // planes[0][0].numel())
    if few == 1:  # large views, in their own place
        for view, number in enumerate(choice.tolist()):
            if number in steps:
                operation, parameters = steps[number]
                red, green, blue, *some = (x[view : view + 1] for x in (*planes, *parameters))
                after = operation((red, green, blue), *some)
                for old, new in zip((red, green, blue), after, strict=True):
                    if new is not old:
                        old.copy_(new)
        return planes
    for number, (operation, parameters) in steps.items():
        every = (choice == number).nonzero()[:, 0]
        for index in every.split(few) if len(every) else ():
            tensors = (*planes, *parameters)
            red, green, blue, *some = (x.index_select(0, index) for x in tensors)
            for plane, new in zip(planes, operation((red, green, blue), *some), strict=True):
                plane.index_copy_(0, index, new)
    return planes


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
