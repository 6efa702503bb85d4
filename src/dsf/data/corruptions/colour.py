"""Changes of colour: brightness, contrast, saturation."""

import torch
from torch import Tensor

from dsf.data.corruptions.constants import Constants
from dsf.data.corruptions.draws import Draws
from dsf.data.corruptions.levels import as_levels, on_device, truncated


def contrast(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """Each channel drawn towards its mean, of which it keeps ``factor`` of the distance."""
    (factor,) = constants
    levels = as_levels(images)
    mean = levels.mean(dim=(-2, -1), keepdim=True)
    return truncated((levels - mean) * factor + mean)


def brightness(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """The value of HSV, the largest of the channels, raised by ``amount``, at most to 1.

    Hue and saturation stay: all channels grow by the same factor. Black becomes grey.
    """
    (amount,) = constants
    levels = as_levels(images)
    value = levels.amax(dim=1, keepdim=True)
    brighter = (value + 255 * amount).clamp_(max=255)
    return truncated(torch.where(value > 0, levels * (brighter / value), brighter))


def saturate(images: Tensor, constants: Constants, draws: Draws) -> Tensor:
    """The saturation s of HSV becomes factor s + amount, within [0, 1].

    Value and hue stay: the distances of all channels from the largest grow by the same factor.
    Grey has no hue; as in scikit-image it counts as red.
    """
    factor, amount = constants
    levels = as_levels(images)
    value, lowest = levels.amax(dim=1, keepdim=True), levels.amin(dim=1, keepdim=True)
    saturation = (value - lowest) / value.clamp(min=1)
    changed = (saturation * factor + amount).clamp_(0, 1)
    coloured = value - (value - levels) * (changed / saturation)
    red = on_device(torch.tensor([0.0, 1.0, 1.0], dtype=levels.dtype), levels)
    reddened = value * (1 - changed * red[:, None, None])
    return truncated(torch.where(saturation > 0, coloured, reddened))
