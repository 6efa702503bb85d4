"""Views under torch.compile, and on a CUDA device."""

import pytest
import torch
from pil_reference import images

from dsf.data.augment import RECIPES, TwoSides, Views

both_forms = pytest.mark.parametrize("exact", [True, False], ids=["exact", "fused"])
every_recipe = pytest.mark.parametrize("name", RECIPES)


def batch(device="cpu", count=16, views=4):
    samples = torch.arange(2**31, 2**31 + count)
    arguments = (images()[:count], samples, torch.tensor(5), torch.arange(views))
    return [x.to(device) for x in arguments]


def parameters(views, samples, epoch, ids):
    sizes = torch.full((len(samples), 2), 32, device=samples.device)
    return views.draw(samples, epoch, ids, sizes)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("exact", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_compiled_views_have_the_same_bits(exact):
    views = Views(exact=exact, seed=2**40 + 1)
    compiled = torch.compile(views, fullgraph=True)
    arguments = batch()
    assert torch.equal(compiled(*arguments), views(*arguments))
    arguments[2] = torch.tensor(6)
    assert torch.equal(compiled(*arguments), views(*arguments))


@pytest.mark.usefixtures("compiler")
def test_compiled_parameters_have_the_same_bits():
    views = Views(seed=2**40 + 1)
    compiled = torch.compile(parameters, fullgraph=True)
    arguments = batch(count=64, views=8)[1:]
    for ours, expected in zip(compiled(views, *arguments), parameters(views, *arguments)):
        assert torch.equal(ours, expected)


@both_forms
@every_recipe
def test_nothing_looks_at_data(name, exact):
    """Tensors without data, which are treated as a GPU's are."""
    with torch.device("meta"):
        views = TwoSides(*(Views(name, exact=exact) for _ in range(2)))
        pixels = torch.zeros(8, 3, 40, 40, dtype=torch.uint8)
        samples = torch.zeros(8, dtype=torch.int64)
        ids = torch.zeros(4, dtype=torch.int64)
        sizes = torch.ones(8, 2, dtype=torch.int64)
        epoch = torch.zeros((), dtype=torch.int64)
    out = views(pixels, samples, epoch, ids, sizes)
    assert out.shape == (8, 4, 3, 32, 32)


@pytest.mark.gpu
class TestCuda:
    @pytest.mark.parametrize("compiled", [False, True])
    def test_parameters_have_the_same_bits(self, compiled):
        torch._dynamo.reset()
        views = Views(seed=11)
        expected = parameters(views, *batch(count=64, views=8)[1:])
        function = torch.compile(parameters, fullgraph=True) if compiled else parameters
        ours = function(views.cuda(), *batch("cuda", count=64, views=8)[1:])
        for a, b in zip(ours, expected):
            assert torch.equal(a.cpu(), b)

    @pytest.mark.parametrize("compiled", [False, True])
    @both_forms
    @every_recipe
    def test_pixels_are_within_a_level(self, name, exact, compiled):
        torch._dynamo.reset()
        views = Views(name, exact=exact, seed=11)
        expected = views(*batch(count=64, views=8))
        views = views.cuda()
        function = torch.compile(views, fullgraph=True) if compiled else views
        ours = function(*batch("cuda", count=64, views=8))
        assert ours.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
        ours = ours.cpu()
        level = 1 / (255 * torch.tensor(views.recipe.std)[:, None, None])
        assert ((ours - expected).abs() <= 1.001 * level).all()
        # The arithmetic is made to be exact; a level would already be a surprise.
        assert (ours == expected).double().mean() > 0.9999

    @both_forms
    @every_recipe
    def test_no_synchronisation(self, name, exact):
        views = Views(name, exact=exact).cuda()
        arguments = batch("cuda")
        views(*arguments)
        torch.cuda.set_sync_debug_mode("error")
        try:
            views(*arguments)
            views(arguments[0], arguments[1], 3, arguments[3])
        finally:
            torch.cuda.set_sync_debug_mode("default")
