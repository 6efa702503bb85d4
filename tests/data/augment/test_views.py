"""Views are a function of seed, epoch, sample and view, and complain clearly."""

from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from pil_reference import images

from dsf.data.augment import RECIPES, Recipe, TwoSides, Views, planes, resample

IMAGES = images()
SAMPLES = torch.arange(1000, 1064)
IDS = torch.arange(4)
both_forms = pytest.mark.parametrize("exact", [True, False])


def parameters(views, samples, ids=IDS, epoch=0):
    sizes = torch.full((len(samples), 2), 32)
    drawn = views.draw(samples, torch.tensor(epoch), ids, sizes)
    return [x.unflatten(0, (len(samples), len(ids))) for x in drawn]


@both_forms
@pytest.mark.parametrize("name", RECIPES)
def test_shape_and_layout(name, exact):
    out = Views(name, size=48, exact=exact)(IMAGES, SAMPLES, 0, IDS)
    assert out.shape == (64, 4, 3, 48, 48)
    assert out.dtype == torch.float32
    assert out.is_contiguous()


@both_forms
def test_strides_do_not_matter(exact):
    views = Views(exact=exact)
    expected = views(IMAGES, SAMPLES, 0, IDS)
    wide = torch.zeros(64, 3, 40, 70, dtype=torch.uint8)
    strided = wide[:, :, 4:36, 2:66:2]
    strided.copy_(IMAGES)
    for same in (IMAGES.contiguous(), strided):
        assert same.stride() != IMAGES.stride()
        assert torch.equal(views(same, SAMPLES, 0, IDS), expected)


@both_forms
def test_a_view_depends_on_its_sample_only(exact):
    """Any batch and any order give the same view: batches of 64 or 16, shuffled, two ranks."""
    views = Views(exact=exact, seed=7)
    whole = views(IMAGES, SAMPLES, 2, IDS)
    order = torch.randperm(64)
    assert torch.equal(views(IMAGES[order], SAMPLES[order], 2, IDS), whole[order])
    for rank in range(2):
        part = views(IMAGES[rank::2], SAMPLES[rank::2], 2, IDS)
        assert torch.equal(part, whole[rank::2])
    parts = [views(IMAGES[i : i + 16], SAMPLES[i : i + 16], 2, IDS) for i in range(0, 64, 16)]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(views(IMAGES, SAMPLES, 2, IDS[2:]), whole[:, 2:])
    assert torch.equal(views(IMAGES, SAMPLES, torch.tensor(2), IDS), whole)


def test_parameters_of_batches_of_64_and_256():
    views, samples = Views(seed=3), torch.arange(256) + 2**31
    whole = parameters(views, samples)
    for first in range(0, 256, 64):
        part = parameters(views, samples[first : first + 64])
        for a, b in zip(part, whole):
            assert torch.equal(a, b[first : first + 64])


def test_everything_in_the_counter_counts():
    base = parameters(Views(seed=0), SAMPLES)
    others = [
        parameters(Views(seed=1), SAMPLES),
        parameters(Views(seed=2**32), SAMPLES),
        parameters(Views(seed=0), SAMPLES, epoch=1),
        parameters(Views(seed=0), SAMPLES + 64),
        parameters(Views(seed=0), SAMPLES, ids=IDS + 4),
    ]
    factors = [fields[9] for fields in (base, *others)]  # of the jitter: continuous
    for i, first in enumerate(factors):
        for second in factors[:i]:
            drawn = (first != 1).any(-1) & (second != 1).any(-1)
            assert drawn.sum() > 100
            assert (first != second).any(-1)[drawn].float().mean() > 0.99


def test_recipes_do_not_shift_each_others_parameters():
    """What one operation draws does not depend on which others there are."""
    plain = Recipe(jitter=0.8)
    full = replace(plain, randaugment=0.5, operations=5, blur=0.5, solarize=0.2)
    sizes = torch.full((64, 2), 32)
    a, b = (Views(x).draw(SAMPLES, torch.tensor(0), IDS, sizes) for x in (plain, full))
    for name in ("top", "left", "height", "width", "flip", "jitter", "order", "factors", "hue"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name


def test_normalisation():
    recipe = Recipe(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0.0)
    out = Views(recipe)(IMAGES, SAMPLES, 0, IDS[:1])[:, 0]
    mean, std = (torch.tensor(x)[:, None, None] for x in (recipe.mean, recipe.std))
    torch.testing.assert_close(out, (IMAGES / 255 - mean) / std, rtol=1e-5, atol=1e-6)


def test_half_precision_and_module_casts():
    expected = Views()(IMAGES, SAMPLES, 0, IDS)
    half = Views(dtype=torch.bfloat16)(IMAGES, SAMPLES, 0, IDS)
    assert torch.equal(half, expected.to(torch.bfloat16))
    assert torch.equal(Views().bfloat16()(IMAGES, SAMPLES, 0, IDS), expected)
    assert Views().state_dict() == {}


@both_forms
def test_odd_sizes_and_a_single_operation(exact):
    recipe = Recipe(randaugment=1.0, operations=1, blur=1.0, blur_radius=(3.0, 4.0))
    out = Views(recipe, size=7, exact=exact)(IMAGES[:5, :, :13, :19], SAMPLES[:5], 0, IDS[:1])
    assert out.shape == (5, 1, 3, 7, 7)
    assert out.isfinite().all()


def test_two_sides():
    first, second = Views("mocov3-1"), Views("mocov3-2")
    out = TwoSides(first, second)(IMAGES, SAMPLES, 1, IDS)
    assert torch.equal(out[:, :2], first(IMAGES, SAMPLES, 1, IDS[:2]))
    assert torch.equal(out[:, 2:], second(IMAGES, SAMPLES, 1, IDS[2:]))
    assert out.is_contiguous()


def test_two_sides_must_fit():
    with pytest.raises(ValueError, match="same size and dtype"):
        TwoSides(Views(size=32), Views(size=48))
    with pytest.raises(ValueError, match="even in number"):
        TwoSides(Views(), Views())(IMAGES, SAMPLES, 0, IDS[:3])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flip": 1.5}, "flip must be a probability in \\[0, 1\\]; got 1.5"),
        ({"randaugment": -0.1}, "randaugment must be a probability"),
        ({"jitter": float("nan")}, "jitter must be a probability"),
        ({"grayscale": 2}, "grayscale must be a probability"),
        ({"blur": 1.01}, "blur must be a probability"),
        ({"solarize": -1}, "solarize must be a probability"),
        ({"hue": 0.6}, "hue must be in \\[0, 0.5\\]"),
        ({"contrast": 1.2}, "contrast must be in \\[0, 1\\]"),
        ({"crop_scale": (0.5, 0.2)}, "crop_scale must be \\(low, high\\)"),
        ({"crop_scale": (0.5, 1.2)}, "crop_scale must be"),
        ({"crop_ratio": (0.0, 1.0)}, "crop_ratio must be"),
        ({"blur_radius": (0.0, 2.0)}, "blur_radius must be"),
        ({"solarize_threshold": 300}, "solarize_threshold must be in \\[0, 256\\]"),
        ({"operations": 0}, "operations must be at least 1; got 0"),
        ({"magnitude": 31}, "magnitude must be in \\[0, magnitude_bins\\)"),
        ({"mean": (0.5,)}, "mean must hold 3 numbers"),
        ({"std": (0.2, 0.2, 0.0)}, "std must be positive"),
    ],
)
def test_recipes_check_their_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


def test_recipes_are_constant():
    with pytest.raises(FrozenInstanceError):
        RECIPES["cifar"].flip = 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recipe": "imagenet"}, "recipe must be a Recipe or one of .*'cifar'.*; got 'imagenet'"),
        ({"size": 3}, "size must be in"),
        ({"seed": -1}, "seed must be in"),
        ({"dtype": torch.uint8}, "dtype must be a floating-point type; got torch.uint8"),
    ],
)
def test_views_check_their_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Views(**settings)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"images": IMAGES.float()}, "images must be uint8 .*; got torch.float32"),
        ({"images": IMAGES[0]}, "images must be uint8 of shape \\(B, 3, H, W\\)"),
        ({"images": IMAGES.permute(0, 2, 3, 1)}, "got torch.uint8 of shape \\(64, 32, 32, 3\\)"),
        ({"images": IMAGES[:, :, :0]}, "must not be empty"),
        ({"samples": SAMPLES[:3]}, "samples must be integers of shape \\(64,\\)"),
        ({"samples": SAMPLES.float()}, "samples must be integers"),
        ({"view_ids": IDS[:0]}, "must not be empty"),
        ({"view_ids": IDS[None]}, "view_ids must be integers of shape \\(4,\\)"),
        ({"epoch": torch.zeros(1, dtype=torch.int64)}, "epoch must be integers of shape \\(\\)"),
        ({"epoch": -1}, "epoch must be in"),
        ({"sizes": torch.ones(64, 3, dtype=torch.int64)}, "sizes must be .*\\(64, 2\\)"),
        ({"sizes": torch.ones(64, 2)}, "sizes must be integers"),
        ({"samples": SAMPLES.to("meta")}, "samples must be on the images' device, cpu; got meta"),
        ({"images": torch.zeros(64, 3, 129, 32, dtype=torch.uint8)}, "at most 4 times as large"),
    ],
)
def test_views_check_their_input(changed, message):
    arguments = {"images": IMAGES, "samples": SAMPLES, "epoch": 0, "view_ids": IDS} | changed
    with pytest.raises(ValueError, match=message):
        Views(exact=False)(**arguments)


def test_exact_views_shrink_as_far_as_asked():
    large = IMAGES.repeat(1, 1, 5, 5)
    assert Views(exact=True)(large, SAMPLES, 0, IDS[:1]).isfinite().all()


@pytest.mark.parametrize("size", [12, 32, 48])
def test_crops_one_by_one_and_together_are_the_same(monkeypatch, size):
    pictures, samples, ids = images()[:8], torch.arange(8), torch.arange(6)
    sizes = torch.tensor([[32, 32], [60, 20], [20, 60], [500, 375]] * 2)
    views = Views("mocov3-2", size=size, exact=True)
    outcomes = []
    for small in (0, 10**9):
        monkeypatch.setattr(resample, "_SMALL", small)
        outcomes.append(views(pictures, samples, 3, ids, sizes))
    assert torch.equal(*outcomes)


@both_forms
@pytest.mark.parametrize("name", RECIPES)
def test_views_one_by_one_and_together_are_the_same(monkeypatch, name, exact):
    """As large and small ones are made on a CPU."""
    views = Views(name, exact=exact, seed=5)
    expected = views(IMAGES, SAMPLES, 0, IDS)
    monkeypatch.setattr(planes, "_CACHED", 1)
    assert torch.equal(views(IMAGES, SAMPLES, 0, IDS), expected)
