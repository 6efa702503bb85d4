"""Methods whose parts are compiled."""

import copy

import pytest
import torch
from test_methods import every_method, make, make_views

from dsf.models import create_encoder


def given_to_encoders(method, views):
    """The images that each call of an encoder takes."""
    seen = []
    for encoder in {method.encoder, getattr(method, "key_encoder", method.encoder)}:
        encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    method(views)
    return seen


def as_on_a_gpu(views):
    return views.movedim(2, -1).contiguous().movedim(-1, 2)


@pytest.mark.parametrize("layout", [torch.Tensor.contiguous, as_on_a_gpu])
@every_method
def test_compiled_code_serves_any_number_of_views(name, layout):
    # Compiled is for a layout: 16 images of two views and 8 of four must come alike.
    layouts = []
    for m, batch in ((1, 16), (2, 8)):
        seen = given_to_encoders(make(name, "dsf", m), layout(make_views(m, batch=batch)))
        layouts.append([(images.shape, images.stride()) for images in seen])
    assert layouts[0] == layouts[1] != []


@pytest.mark.parametrize("layout", [torch.Tensor.contiguous, as_on_a_gpu])
@pytest.mark.parametrize("name", ["simclr", "mocov3"])
def test_views_that_are_encoded_at_once_are_not_copied(name, layout):
    views = layout(make_views())
    for images in given_to_encoders(make(name), views):
        assert images.data_ptr() == views.data_ptr()
        assert torch.equal(images, views.flatten(0, 1))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)],
)
@every_method
def test_compiled_parts(name, device):
    eager = make(name, encoder=create_encoder("resnet-small", width=4), projector="mlp-bn")
    eager = eager.double().to(device)
    compiled = copy.deepcopy(eager)
    for part in ("encoder", "key_encoder", "loss"):
        if hasattr(compiled, part):
            getattr(compiled, part).compile(fullgraph=True)
    for seed in range(3):
        views = make_views(seed=seed).double().to(device)
        outcomes = []
        for method in (compiled, eager):
            loss = method(views, diagnose=False).loss
            outcomes.append((loss, *torch.autograd.grad(loss, list(method.encoder.parameters()))))
            method.after_step()
        torch.testing.assert_close(*outcomes, rtol=1e-8, atol=1e-9)
