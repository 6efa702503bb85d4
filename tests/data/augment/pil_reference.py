"""Real images, and torchvision on PIL images to compare with."""

import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torchvision import transforms
from torchvision.transforms import InterpolationMode, autoaugment, functional

from dsf.data.augment import OPERATIONS

NEAREST = InterpolationMode.NEAREST


def images():
    """64 images of CIFAR-10, (64, 3, 32, 32) uint8, as a channels_last view."""
    sheet = np.asarray(Image.open(Path(__file__).with_name("cifar10_test_64.webp")))
    pixels = sheet.reshape(8, 32, 8, 32, 3).swapaxes(1, 2).reshape(64, 32, 32, 3)
    return torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2)


def to_pil(tensors):
    return [Image.fromarray(x.permute(1, 2, 0).numpy()) for x in tensors]


def from_pil(pictures):
    return torch.stack([torch.from_numpy(np.array(x)) for x in pictures]).permute(0, 3, 1, 2)


def apply(function, tensors):
    """What a function of PIL images makes of a batch."""
    return from_pil([function(picture) for picture in to_pil(tensors)])


def as_planes(tensors):
    return tuple(plane.to(torch.float32) for plane in tensors.unbind(1))


def agree(planes, expected, levels=2, share=0.99):
    """Whether pixels are within some levels on a share of the pixels (Done-when of the views)."""
    ours = torch.stack([plane.to(torch.float32) for plane in planes], dim=1)
    assert ours.shape == expected.shape
    close = ((ours - expected.to(torch.float32)).abs() <= levels).double().mean().item()
    assert close >= share, f"{close:.4%} of the pixels are within {levels} levels"


def magnitude(name, recipe, size, negative=False):
    """torchvision's magnitude of an operation."""
    space = autoaugment.RandAugment()._augmentation_space(recipe.magnitude_bins, (size, size))
    values, signed = space[name]
    value = float(values[recipe.magnitude]) if values.ndim else 0.0
    return -value if signed and negative else value


def operation(name, recipe, size, negative=False):
    """One of torchvision's RandAugment operations as a function."""
    value = magnitude(name, recipe, size, negative)
    return lambda picture: autoaugment._apply_op(picture, name, value, NEAREST, None)


def replay(picture, parameters, view, recipe, size):
    """The pipeline in torchvision's order with the parameters of one of our views."""
    p = type(parameters)(*(field[view].tolist() for field in parameters))
    picture = functional.resized_crop(picture, p.top, p.left, p.height, p.width, [size, size])
    if recipe.randaugment:
        for place, negative in zip(p.operations, p.negative):
            picture = operation(OPERATIONS[place], recipe, size, negative)(picture)
    if p.jitter:
        names = ("brightness", "contrast", "saturation", "hue")
        # The middle of the hues that torchvision rounds to this level.
        hue = (p.hue + 0.5 * ((p.hue > 0) - (p.hue < 0))) / 255
        for kind in p.order:
            if getattr(recipe, names[kind]) > 0:
                adjust = getattr(functional, f"adjust_{names[kind]}")
                picture = adjust(picture, (*p.factors, hue)[kind])
    if p.grayscale:
        picture = functional.to_grayscale(picture, 3)
    if p.radius:
        picture = picture.filter(ImageFilter.GaussianBlur(p.radius))
    if p.solarize:
        picture = functional.solarize(picture, recipe.solarize_threshold)
    return functional.hflip(picture) if p.flip else picture


class Blur:
    """PIL's Gaussian blur with a random radius, as MoCo v2 has it."""

    def __init__(self, radius):
        self.radius = radius

    def __call__(self, picture):
        return picture.filter(ImageFilter.GaussianBlur(random.uniform(*self.radius)))


def pipeline(recipe, size):
    """A recipe in torchvision's own transforms, up to the PIL image."""
    strengths = (recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue)
    randaugment = transforms.RandAugment(recipe.operations, recipe.magnitude, recipe.magnitude_bins)
    solarize = transforms.RandomSolarize(recipe.solarize_threshold, recipe.solarize)
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size, recipe.crop_scale, recipe.crop_ratio),
            transforms.RandomApply([randaugment], recipe.randaugment),
            transforms.RandomApply([transforms.ColorJitter(*strengths)], recipe.jitter),
            transforms.RandomGrayscale(recipe.grayscale),
            transforms.RandomApply([Blur(recipe.blur_radius)], recipe.blur),
            solarize,
            transforms.RandomHorizontalFlip(recipe.flip),
        ]
    )


def same_distribution(ours, theirs):
    """Two-sample Kolmogorov-Smirnov at 1 %; conservative where values are discrete."""
    ours, theirs = (torch.as_tensor(x, dtype=torch.float64).sort().values for x in (ours, theirs))
    points = torch.cat([ours, theirs])
    steps = [torch.searchsorted(x, points, right=True) / len(x) for x in (ours, theirs)]
    distance = (steps[0] - steps[1]).abs().max().item()
    critical = 1.63 * (1 / len(ours) + 1 / len(theirs)) ** 0.5
    assert distance < critical, f"distance {distance:.4f}, critical {critical:.4f}"
