"""Every operation, given its parameters, against torchvision's on real images."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps
from pil_reference import agree, apply, as_planes, images, magnitude, operation, replay, to_pil
from torchvision.transforms import functional

from dsf.data.augment import OPERATIONS, RECIPES, Recipe, Views
from dsf.data.augment.blur import box_reach, box_weights, gaussian_blur
from dsf.data.augment.colour import (
    average,
    brightness,
    contrast,
    grayscale,
    rotate_hue,
    saturation,
)
from dsf.data.augment.geometry import affine_table, as_double, nearest
from dsf.data.augment.levels import equalize, solarize
from dsf.data.augment.randaugment import RandAugment, is_geometric

IMAGES = images()
CIFAR = RECIPES["cifar"]
ROUNDED = ("Brightness", "Color", "Contrast", "Sharpness", "AutoContrast")  # PIL's are floats


def every(value):
    return torch.full((len(IMAGES),), value)


def dyadic(value):
    return every(round(value * 2**14) / 2**14)


FACTORS = {
    brightness: functional.adjust_brightness,
    contrast: functional.adjust_contrast,
    saturation: functional.adjust_saturation,
}


@pytest.mark.parametrize("ours", FACTORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("factor", [0.0, 0.6, 0.83, 1.0, 1.27, 1.4])
def test_factors(ours, factor):
    expected = apply(lambda x: FACTORS[ours](x, factor), IMAGES)
    agree(ours(as_planes(IMAGES), dyadic(factor)), expected, levels=1, share=1)


@pytest.mark.parametrize("hue", [-0.5, -0.1, -0.03, 0.0, 0.05, 0.1, 0.5])
def test_hue(hue):
    # PIL rounds hues in floating point, where ours are exact: 4 levels, on 1 pixel of 10,000.
    expected = apply(lambda x: functional.adjust_hue(x, hue), IMAGES)
    ours = rotate_hue(as_planes(IMAGES), every(math.trunc(hue * 255)))
    agree(ours, expected, share=0.999)
    agree(ours, expected, levels=4, share=1)


def test_grayscale():
    expected = apply(lambda x: functional.to_grayscale(x, 3), IMAGES)
    agree(grayscale(as_planes(IMAGES)), expected, levels=0, share=1)


@pytest.mark.parametrize("threshold", [0, 1, 128, 255, 256])
def test_solarize(threshold):
    expected = apply(lambda x: functional.solarize(x, threshold), IMAGES)
    agree(solarize(as_planes(IMAGES), every(threshold)), expected, levels=0, share=1)


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.4, 0.77, 1.0, 1.3, 1.634, 1.9, 2.0])
def test_blur(radius):
    # At 1.0 one sum in six ends in one half, which PIL rounds by what its weights leave over.
    expected = apply(lambda x: x.filter(ImageFilter.GaussianBlur(radius)), IMAGES)
    ours = gaussian_blur(as_planes(IMAGES), box_weights(every(radius), box_reach(2.0)))
    agree(ours, expected, share=0.999)
    agree(ours, expected, levels=0 if radius != 1.0 else 3, share=0.999)


def test_large_blur():
    expected = apply(lambda x: x.filter(ImageFilter.GaussianBlur(5.3)), IMAGES)
    box = box_weights(every(5.3), box_reach(6.0))
    agree(gaussian_blur(as_planes(IMAGES), box), expected, share=1)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("magnitude", [0, 9, 20, 30])
def test_randaugment(name, negative, magnitude):
    recipe = replace(CIFAR, magnitude=magnitude)
    expected = apply(operation(name, recipe, 32, negative), IMAGES)
    module, positions = RandAugment(recipe, 32), torch.arange(32)
    chosen, sign = every(OPERATIONS.index(name)), every(negative)
    matrix = as_double(module.matrix(chosen, sign))
    moved = nearest(IMAGES.unbind(1), matrix, positions.to(torch.int32))
    ours = module.colour(moved, chosen, sign, positions)
    agree(ours, expected, levels=1 if name in ROUNDED else 0, share=1)


@pytest.mark.parametrize(
    "pixels", [torch.zeros(64), torch.tensor([7] * 60 + [9] * 4)], ids=["constant", "two levels"]
)
@pytest.mark.parametrize("name", ["AutoContrast", "Equalize", "Contrast", "Sharpness"])
def test_hardly_any_levels(name, pixels):
    batch = pixels.to(torch.uint8).reshape(1, 1, 8, 8).expand(2, 3, 8, 8)
    chosen, sign = torch.full((2,), OPERATIONS.index(name)), torch.tensor([False, True])
    ours = RandAugment(CIFAR, 8).colour(batch.unbind(1), chosen, sign, torch.arange(8))
    views = [apply(operation(name, CIFAR, 8, bool(n)), batch[:1]) for n in sign]
    agree(ours, torch.cat(views), levels=1, share=1)


class TestLargeViews:
    """Their sums exceed 32 bits, and their counts of pixels what float32 holds exactly."""

    SIZE = 3000

    def test_the_mean(self):
        assert average(torch.full((1, self.SIZE, self.SIZE), 255.0)).item() == 255

    def test_equalize(self):
        step = 35_000  # of 255: level 1 comes to just below 250 of them
        first, second = 250 * step - 1 - step // 2, 255 * step
        plane = torch.zeros(self.SIZE**2)
        plane[first:second], plane[second:] = 1, 2
        plane = plane.view(1, self.SIZE, self.SIZE)
        picture = Image.fromarray(plane[0].to(torch.uint8).numpy())
        expected = torch.from_numpy(np.array(ImageOps.equalize(picture)))
        ours, *_ = equalize((plane,) * 3, torch.tensor([True]), torch.arange(self.SIZE))
        assert torch.equal(ours[0].to(torch.uint8), expected)


def test_translations_by_whole_pixels():
    """A view of 331 pixels moves by 5 a step of the magnitude; a float may fall short of that."""
    for place in range(31):
        recipe = replace(CIFAR, magnitude=place)
        moved = -affine_table(recipe, 331)[OPERATIONS.index("TranslateX"), 0, 2].item() / 2**32
        assert moved == int(magnitude("TranslateX", recipe, 331))


CROPS = Recipe(crop_scale=(0.1, 1.0))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("stored", "size"), [(32, 32), (32, 48), (64, 56), (64, 32), ((40, 72), 36)]
)
def test_crop_and_flip(exact, stored, size):
    height, width = (stored, stored) if isinstance(stored, int) else stored
    batch = apply(lambda x: x.resize((width, height), Image.Resampling.BICUBIC), IMAGES)
    views = Views(CROPS, size=size, exact=exact)
    agree(*rendered(views, batch, count=4), levels=2 if not exact else 1, share=0.99)


def rendered(views, batch, count):
    """Planes of our views, and what torchvision makes with their parameters."""
    samples, ids = torch.arange(len(batch)), torch.arange(count)
    sizes = torch.tensor(batch.shape[-2:]).expand(len(batch), 2)
    parameters = views.draw(samples, torch.tensor(3), ids, sizes)
    planes = views.apply_to(batch, parameters, sizes.repeat_interleave(count, 0))
    pictures = [x for x in to_pil(batch) for _ in range(count)]
    expected = [
        replay(picture, parameters, view, views.recipe, views.size)
        for view, picture in enumerate(pictures)
    ]
    return planes, torch.stack([functional.pil_to_tensor(picture) for picture in expected])


@pytest.mark.parametrize("name", RECIPES)
def test_a_whole_recipe(name):
    views = Views(name, size=32, exact=True)
    agree(*rendered(views, IMAGES, count=16))


@pytest.mark.parametrize("name", ["mocov3-1", "mocov3-2"])
def test_recipes_without_randaugment_need_not_be_exact(name):
    agree(*rendered(Views(name, size=32), IMAGES, count=16))


@pytest.mark.parametrize("part", ["brightness", "contrast", "saturation", "hue"])
def test_jitter_leaves_out_what_has_no_strength(part):
    names = ("brightness", "contrast", "saturation", "hue")
    recipe = Recipe(jitter=1.0, **(dict.fromkeys(names, 0.0) | {part: 0.3}))
    views = Views(recipe, size=32, exact=True)
    agree(*rendered(views, IMAGES, count=2), share=0.999)


def test_exact_and_fused_differ_in_geometry_only():
    """Where no pixels move, both forms agree; where they do, in the mean."""
    recipe = Recipe(crop_scale=(0.2, 1.0), randaugment=1.0, operations=2)
    exact, fused = (Views(recipe, exact=exact) for exact in (True, False))
    samples, ids = torch.arange(64), torch.arange(16)
    sizes = torch.full((64, 2), 32)
    parameters = exact.draw(samples, torch.tensor(0), ids, sizes)
    outputs = [
        torch.stack(v.apply_to(IMAGES, parameters, sizes.repeat_interleave(16, 0)), 1).float()
        for v in (exact, fused)
    ]
    moved = is_geometric(parameters.operations).any(-1)
    difference = (outputs[0] - outputs[1]).abs().mean((1, 2, 3))
    assert difference[~moved].max() < 0.1
    assert 1 < difference[moved].mean() < 16
    ratio = outputs[0][moved].mean() / outputs[1][moved].mean()
    assert 0.97 < ratio < 1.03


@pytest.mark.parametrize("names", [("TranslateX", "Rotate"), ("Rotate", "ShearY"), ("ShearX",) * 2])
def test_fused_movements_come_in_their_order(names):
    """Large ones, on smooth images, where nearest and interpolated pixels are alike."""
    smooth = apply(lambda x: x.filter(ImageFilter.GaussianBlur(2)), IMAGES)
    recipe = Recipe(crop_scale=(0.5, 1.0), randaugment=1.0, magnitude=24)
    sizes = torch.full((64, 2), 32)
    planes = []
    for exact in (True, False):
        views = Views(recipe, exact=exact)
        parameters = views.draw(torch.arange(64), torch.tensor(0), torch.arange(1), sizes)
        chosen = torch.tensor([OPERATIONS.index(name) for name in names]).expand(64, 2)
        parameters = parameters._replace(operations=chosen)
        planes.append(torch.stack(views.apply_to(smooth, parameters, sizes), 1).float())
    seen = (planes[0] > 0) & (planes[1] > 0)
    assert seen.float().mean() > 0.3
    difference = (planes[0] - planes[1]).abs()[seen]
    assert difference.mean() < 4
    # What leaves the view and comes back is lost in the exact form only.
    assert ((planes[0] > 0) & (planes[1] == 0)).float().mean() < 0.04


def test_a_border_stays_black_when_colours_change_first():
    recipe = Recipe(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), randaugment=1.0, flip=0.0)
    views = Views(recipe)
    sizes = torch.full((64, 2), 32)
    parameters = views.draw(torch.arange(64), torch.tensor(0), torch.arange(1), sizes)
    first, second = OPERATIONS.index("Contrast"), OPERATIONS.index("TranslateX")
    parameters = parameters._replace(
        operations=torch.tensor([[first, second]]).expand(64, 2),
        negative=torch.tensor([[True, True]]).expand(64, 2),
    )
    for plane in views.apply_to(IMAGES, parameters, sizes):
        assert (plane[:, :, -4:] == 0).all()
        assert (plane[:, :, :-4] > 0).float().mean() > 0.9


def test_crops_of_squashed_images_are_the_originals():
    """A wide image, stored as a square, gives about the view that the original gives."""
    wide = apply(lambda x: x.resize((96, 48), Image.Resampling.BICUBIC), IMAGES)
    square = apply(lambda x: x.resize((64, 64), Image.Resampling.BILINEAR), wide)
    sizes = torch.tensor([48, 96]).expand(64, 2)
    for exact in (True, False):
        views = Views(Recipe(crop_scale=(0.3, 1.0)), size=32, exact=exact)
        arguments = (torch.arange(64), 0, torch.arange(4))
        ours = views(square, *arguments, sizes=sizes)
        expected = views(wide, *arguments)
        assert (ours - expected).abs().mean() < 0.03
        assert (views(square, *arguments) - expected).abs().mean() > 0.1
