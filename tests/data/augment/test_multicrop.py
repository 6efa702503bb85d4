"""Global and local views in one."""

from dataclasses import replace

import pytest
import torch
from pil_reference import images

from dsf.data.augment import RECIPES, MultiCrop, Recipe, TwoSides, Views

IMAGES = images()[:16]
SAMPLES = torch.arange(1000, 1016)
SMALL = replace(RECIPES["cifar"], crop_scale=(0.05, 0.14))


def multicrop(count=3, seed=5):
    return MultiCrop(Views(seed=seed), Views(SMALL, size=12, seed=seed), count)


def test_views_of_both_kinds():
    whole, local = multicrop()(IMAGES, SAMPLES, 2, torch.arange(7))
    assert whole.shape == (16, 4, 3, 32, 32)
    assert local.shape == (16, 3, 3, 12, 12)
    assert whole.is_contiguous()
    assert local.is_contiguous()
    # The global ones are those of a run without local ones, and local ones have their own ids.
    assert torch.equal(whole, Views(seed=5)(IMAGES, SAMPLES, 2, torch.arange(4)))
    expected = Views(SMALL, size=12, seed=5)(IMAGES, SAMPLES, 2, torch.arange(4, 7))
    assert torch.equal(local, expected)


def test_a_local_view_depends_on_its_sample_only():
    views, ids = multicrop(), torch.arange(7)
    whole = views(IMAGES, SAMPLES, 2, ids)
    order = torch.randperm(16)
    for ours, expected in zip(views(IMAGES[order], SAMPLES[order], 2, ids), whole):
        assert torch.equal(ours, expected[order])
    for other in (multicrop(seed=6)(IMAGES, SAMPLES, 2, ids), views(IMAGES, SAMPLES, 3, ids)):
        assert not torch.equal(other[1], whole[1])


def test_local_crops_are_small():
    """One grey level a row: the rows that a crop takes in show its height."""
    levels = torch.arange(0, 256, 4, dtype=torch.uint8)
    pictures = levels[:, None].expand(1, 3, 64, 64)
    plain = Recipe(crop_scale=(0.05, 0.14), mean=(0, 0, 0), std=(1 / 255,) * 3)
    views = MultiCrop(Views(replace(plain, crop_scale=(0.9, 1.0))), Views(plain, size=16), 64)
    whole, local = views(pictures, torch.zeros(1, dtype=torch.int64), 0, torch.arange(66))
    spans = [(x.amax(dim=(2, 3, 4)) - x.amin(dim=(2, 3, 4))) / 256 for x in (whole, local)]
    assert spans[0].min() > 0.7
    # sqrt(0.14 * 4 / 3) of the height at most, for a crop as narrow as may be
    assert spans[1].max() < 0.45


def test_two_recipes_and_local_views():
    sides = TwoSides(Views("mocov3-1"), Views("mocov3-2"))
    whole, local = MultiCrop(sides, Views("mocov3-1", size=16), 1)(
        IMAGES, SAMPLES, 0, torch.arange(5)
    )
    assert torch.equal(whole, sides(IMAGES, SAMPLES, 0, torch.arange(4)))
    assert local.shape == (16, 1, 3, 16, 16)


def test_nothing_looks_at_data():
    with torch.device("meta"):
        views = multicrop()
        pixels = torch.zeros(8, 3, 40, 40, dtype=torch.uint8)
        samples, ids = (torch.zeros(n, dtype=torch.int64) for n in (8, 7))
        epoch = torch.zeros((), dtype=torch.int64)
    whole, local = views(pixels, samples, epoch, ids)
    assert whole.shape == (8, 4, 3, 32, 32)
    assert local.shape == (8, 3, 3, 12, 12)


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_compiled_views_have_the_same_bits():
    small = Recipe(crop_scale=(0.05, 0.14))
    views = MultiCrop(Views(Recipe()), Views(small, size=12), 3)  # short to compile
    arguments = (IMAGES, SAMPLES, torch.tensor(3), torch.arange(7))
    compiled = torch.compile(views, fullgraph=True, dynamic=False)
    for ours, expected in zip(compiled(*arguments), views(*arguments)):
        assert torch.equal(ours, expected)


def test_errors():
    with pytest.raises(ValueError, match="count must be at least 1; got 0"):
        multicrop(count=0)
    with pytest.raises(ValueError, match=r"more than the 3 local views; got \(3,\)"):
        multicrop()(IMAGES, SAMPLES, 0, torch.arange(3))
