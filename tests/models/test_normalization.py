import copy

import pytest
import torch
from torch import nn

from dsf.models import SplitBatchNorm, create_encoder, join_batch_norm, split_batch_norm

N, C = 12, 5
SHAPES = {"vectors": (N, C), "signals": (N, C, 7), "images": (N, C, 4, 6)}
every_form = pytest.mark.parametrize("form", [*SHAPES, "strided-vectors", "channels-last"])


def make_input(form, dtype=torch.float64):
    shape = SHAPES["images" if form == "channels-last" else form.removeprefix("strided-")]
    values = 3 + 2 * torch.randn(shape, dtype=dtype)
    if form == "strided-vectors":
        values = values.T.contiguous().T
    if form == "channels-last":
        values = values.to(memory_format=torch.channels_last)
    return values.requires_grad_()


def separate(form, splits, **options):
    """BatchNorms that share their parameters, and ours with the same."""
    kind = nn.BatchNorm1d if form in ("vectors", "strided-vectors", "signals") else nn.BatchNorm2d
    first = kind(C, momentum=0.3, **options).double()
    with torch.no_grad():
        for tensor in (*first.parameters(), *first.buffers()):
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
    ours = split_batch_norm(copy.deepcopy(first), splits)
    parts = [copy.deepcopy(first) for _ in range(splits)]
    for part in parts:
        part.weight, part.bias = first.weight, first.bias
    return ours, parts


@pytest.mark.parametrize("splits", [1, 2, 4])
@pytest.mark.parametrize("affine", [True, False])
@every_form
def test_equals_separate_batch_norms(form, affine, splits):
    ours, parts = separate(form, splits, affine=affine)
    assert isinstance(ours, SplitBatchNorm)
    for _ in range(2):
        values = make_input(form)
        groups = [part(values[group::splits]) for group, part in enumerate(parts)]
        expected = torch.stack(groups, dim=1).flatten(0, 1)
        result = ours(values)
        torch.testing.assert_close(result, expected)
        assert result.stride() == values.stride()
        weights = torch.randn_like(expected)
        torch.testing.assert_close(
            torch.autograd.grad((result * weights).sum(), [values, *ours.parameters()]),
            torch.autograd.grad((expected * weights).sum(), [values, *parts[0].parameters()]),
        )
    for name in ("running_mean", "running_var"):
        average = torch.stack([getattr(part, name) for part in parts]).mean(dim=0)
        torch.testing.assert_close(getattr(ours, name), average)
    assert ours.num_batches_tracked == 2
    values = make_input(form)
    parts[0].load_state_dict(ours.state_dict())
    assert torch.equal(ours.eval()(values), parts[0].eval()(values))


@every_form
def test_without_running_statistics(form):
    ours, parts = separate(form, 3, track_running_stats=False)
    values = make_input(form)
    expected = torch.stack([part(values[i::3]) for i, part in enumerate(parts)], dim=1)
    torch.testing.assert_close(ours.eval()(values), expected.flatten(0, 1))


@every_form
def test_bfloat16_input_has_float32_statistics(form):
    ours = SplitBatchNorm(C, splits=2)
    values = make_input(form, torch.bfloat16)
    result = ours(values)
    assert result.dtype is torch.bfloat16
    expected = copy.deepcopy(ours)(values.float())
    torch.testing.assert_close(result.float(), expected, rtol=2**-8, atol=1e-6)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("form", ["vectors", "images", "channels-last"])
def test_compiled_in_one_graph(form):
    eager, compiled = SplitBatchNorm(C, splits=4), SplitBatchNorm(C, splits=4)
    compiled.compile(fullgraph=True)
    values = make_input(form, torch.float32)
    outcomes = []
    for module in (eager, compiled):
        result = module(values)
        (gradient,) = torch.autograd.grad(result.pow(3).sum(), values)
        assert result.stride() == values.stride()
        outcomes.append((result, gradient, module.running_mean, module.running_var))
    torch.testing.assert_close(*outcomes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["vectors", "images", "channels-last"])
def test_a_momentum_that_is_changed_later(form):
    ours, parts = separate(form, 2)
    for layer in (ours, *parts):
        layer.momentum = 0.6
    values = make_input(form)
    ours(values)
    for group, part in enumerate(parts):
        part(values[group::2])
    average = torch.stack([part.running_mean for part in parts]).mean(dim=0)
    torch.testing.assert_close(ours.running_mean, average)
    assert join_batch_norm(copy.deepcopy(ours)).momentum == 0.6
    ours.momentum = None
    with pytest.raises(ValueError, match="momentum must be"):
        ours(values)


def test_views_of_an_image_fall_into_different_groups():
    # Four views side by side: views of the same kind share statistics, unlike ones do not.
    views = torch.randn(8, 4, C) + torch.arange(4.0)[:, None] * 100
    result = SplitBatchNorm(C, splits=4)(views.flatten(0, 1)).unflatten(0, (8, 4))
    assert result.mean(dim=0).abs().max() < 1e-4


def test_converts_whole_networks():
    encoder = create_encoder("resnet-small")
    state = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    assert split_batch_norm(encoder, 4) is encoder
    layers = [layer for layer in encoder.modules() if isinstance(layer, SplitBatchNorm)]
    assert len(layers) == 12
    assert not any(type(layer) is nn.BatchNorm2d for layer in encoder.modules())
    assert all(torch.equal(state[name], tensor) for name, tensor in encoder.state_dict().items())
    assert encoder(torch.randn(8, 3, 32, 32)).shape == (8, 128)
    assert split_batch_norm(encoder, 4) is encoder
    assert "splits=4" in repr(encoder)


class Fused(nn.BatchNorm2d):
    pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SplitBatchNorm(C, splits=5)(torch.randn(N, C)), "5 splits do not divide.* of 12"),
        (lambda: SplitBatchNorm(C, splits=N)(torch.randn(N, C)), "more than one value"),
        (lambda: SplitBatchNorm(C, splits=2)(torch.randn(N)), r"shape \(N, C, ...\)"),
        (lambda: SplitBatchNorm(C, splits=0), "at least 1"),
        (lambda: SplitBatchNorm(C, splits=2, momentum=None), "momentum must be"),
        (lambda: split_batch_norm(nn.BatchNorm2d(C, momentum=None), 2), "without momentum"),
        (lambda: split_batch_norm(nn.Sequential(Fused(C)), 2), "cannot split Fused"),
        (lambda: split_batch_norm(SplitBatchNorm(C, 4), 2), "4 splits already; got 2"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@every_form
def test_on_cuda(form):
    cpu = SplitBatchNorm(C, splits=3)
    gpu = copy.deepcopy(cpu).cuda()
    values = make_input(form, torch.float32)
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = gpu(values.detach().to("cuda", non_blocking=True))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(result.cpu(), cpu(values).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gpu.running_var.cpu(), cpu.running_var)


def test_joined_again_it_is_what_it_was():
    encoder = create_encoder("resnet-small", width=4).double()
    joined = join_batch_norm(split_batch_norm(copy.deepcopy(encoder), 4))
    assert not any(isinstance(module, SplitBatchNorm) for module in joined.modules())
    images = torch.randn(7, 3, 8, 8, dtype=torch.float64)  # which four splits do not divide
    torch.testing.assert_close(joined.train()(images), encoder.train()(images))
    for name, value in encoder.state_dict().items():
        torch.testing.assert_close(joined.state_dict()[name], value, msg=name)
    alone = join_batch_norm(SplitBatchNorm(3, 2, momentum=0.3))
    assert alone(torch.randn(5, 3)).shape == (5, 3)
    assert alone.momentum == 0.3
