import numpy as np
import pytest
import torch
from PIL import Image

from dsf.evaluation import LabelledImages
from dsf.evaluation.fixed_view import FixedView


def labelled(images, sizes=None):
    return LabelledImages(images, torch.zeros(len(images), dtype=torch.int64), sizes)


def picture(height, width):
    """A smooth picture, which resizing does not change much."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    planes = [np.sin(3 * x + y), np.cos(4 * y), x * y]
    return Image.fromarray(np.stack([127 + 120 * p for p in planes], -1).astype(np.uint8))


def test_whole_images_stay_as_they_are():
    images = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8)
    view = FixedView(labelled(images), 16)
    assert view(images) is images
    assert view.summary == "whole"


def test_whole_images_are_resized_as_by_pillow():
    source = picture(32, 32)
    images = torch.from_numpy(np.array(source)).permute(2, 0, 1)[None]
    view = FixedView(labelled(images), 20)
    expected = np.asarray(source.resize((20, 20), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(view(images)[0].permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1
    assert view.summary == "whole, resized"


@pytest.mark.parametrize(("height", "width"), [(120, 80), (60, 200), (96, 96)])
def test_squashed_images_are_shown_in_their_proportions(height, width):
    """As by "resize the shorter side to 64, take the centre of 56", up to resampling twice."""
    source = picture(height, width)
    square = np.array(source.resize((64, 64), Image.Resampling.BICUBIC))
    images = torch.from_numpy(square).permute(2, 0, 1)[None]
    sizes = torch.tensor([[height, width]])
    view = FixedView(labelled(images, sizes), 56)
    scale = 64 / min(height, width)
    larger = source.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    left, top = (larger.width - 56) // 2, (larger.height - 56) // 2
    expected = np.asarray(larger.crop((left, top, left + 56, top + 56))).astype(int)
    found = view(images, sizes)[0].permute(1, 2, 0).numpy().astype(int)
    assert np.abs(found - expected).mean() < 2.5
    assert view.summary == "the central square of 7/8 of the shorter side"
    distorted = np.asarray(source.resize((56, 56))).astype(int)
    if height != width:
        assert np.abs(found - distorted).mean() > 5


@pytest.mark.parametrize("size", [3, 5000])
def test_sizes_that_make_no_sense(size):
    images = torch.zeros(1, 3, size, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match=f"images must have 4 to 4096 pixels a side; got {size}"):
        FixedView(labelled(images), 32)
