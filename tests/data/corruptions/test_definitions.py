"""Each corruption against the same one written for a single image, with the same chance."""

import numpy as np
import pytest
import reference
import torch
from PIL import Image
from torch.nn.functional import interpolate

from dsf.data import load
from dsf.data.corruptions import CORRUPTIONS, EXTRA, corrupt
from dsf.data.corruptions.apply import _NUMBERS
from dsf.data.corruptions.constants import constants
from dsf.data.corruptions.draws import Draws

EVERY = (*CORRUPTIONS, *EXTRA)
SMALL = load("embedded", "test").images()[::50].contiguous()
LARGE = interpolate(SMALL[:2].double(), size=96, mode="bicubic").round().clamp(0, 255).byte()
LARGE = torch.cat([LARGE, LARGE.flip(3).roll(1, 1)])[::3].contiguous()
# Black, white, grey, one colour, extremes side by side: what divisions and borders may trip over.
SPECIAL = torch.zeros(5, 3, 32, 32, dtype=torch.uint8)
SPECIAL[1], SPECIAL[2], SPECIAL[3, 0] = 255, 77, 200
SPECIAL[4, :, ::2] = 255


def expected(images, name, severity, seed):
    results = []
    for sample, image in enumerate(images.permute(0, 2, 3, 1).numpy()):
        draws = Draws(seed, _NUMBERS[name], severity, torch.tensor([sample]))
        chosen = constants(name, severity, image.shape[0])
        levels = reference.FUNCTIONS[name](image, chosen, reference.OfSample(draws))
        results.append(reference.cut(levels))
    return torch.from_numpy(np.stack(results)).permute(0, 3, 1, 2)


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", EVERY)
def test_at_32_pixels(name, severity):
    images = torch.cat([SMALL, SPECIAL])
    ours = corrupt(images, name, severity, seed=3)
    assert torch.equal(ours, expected(images, name, severity, seed=3))


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", EVERY)
def test_with_the_constants_of_imagenet(name, severity):
    ours = corrupt(LARGE, name, severity, seed=4)
    assert torch.equal(ours, expected(LARGE, name, severity, seed=4))


@pytest.mark.parametrize("quality", [100, 80, 65, 58, 50, 40, 25, 18, 15, 10, 7, 1])
@pytest.mark.parametrize("size", [(32, 32), (37, 45), (16, 47)])
def test_jpeg_is_pillows_to_the_bit(quality, size):
    from dsf.data.corruptions.jpeg import jpeg_compression

    images = SMALL.permute(0, 2, 3, 1).numpy()
    images = np.stack([np.asarray(Image.fromarray(x).resize(size[::-1])) for x in images])
    theirs = np.stack([reference.jpeg_compression(x, (quality,), None) for x in images])
    ours = jpeg_compression(torch.from_numpy(images).permute(0, 3, 1, 2), (quality,), None)
    assert np.array_equal(ours.permute(0, 2, 3, 1).numpy(), theirs)


def test_edges_and_distances():
    """On layers with weak and strong edges, unlike most of those that spatter makes."""
    from dsf.data.corruptions.edges import canny, distance
    from dsf.data.corruptions.filters import gaussian

    noise = torch.randn(12, 40, 33, dtype=torch.float64)
    layers = gaussian(128 + 300 * noise, 1.5).round().clamp(0, 255)
    found = canny(layers, 50, 150)
    theirs = np.stack([reference.canny(layer, 50, 150) for layer in layers.numpy()])
    assert np.array_equal(found.numpy(), theirs)
    assert 0.01 < found.double().mean() < 0.5
    few = torch.rand(6, 60, 50) < 0.001
    few[0] = False
    ours = distance(few, 20).numpy()
    theirs = np.stack([reference.distance(edges.numpy(), 20) for edges in few])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    assert ours[0].min() == 20


def test_chains_of_glass_blur_are_followed_to_their_ends():
    """Offsets that mostly point at pixels that were visited before."""
    from dsf.data.corruptions.blur import take_neighbours

    class Right:
        def uniform(self, *shape, low, high):
            chance = torch.rand(1, *shape, dtype=torch.float64)
            return torch.where(chance < 0.95, high - 0.5, low + chance * (high - low))

    torch.manual_seed(1)
    pixels = torch.arange(24 * 24, dtype=torch.int32).view(1, 1, 24, 24)
    ours = take_neighbours(pixels, 2, Right())
    torch.manual_seed(1)
    offsets = Right().uniform(2, 24, 24, low=-2, high=2)[0].floor().int()
    theirs = pixels[0, 0].clone()
    for row in range(22, 2, -1):
        for column in range(22, 2, -1):
            right, down = offsets[:, row, column].tolist()
            theirs[row, column] = theirs[row + down, column + right]
    assert torch.equal(ours[0, 0], theirs)
