"""No product of a loss is left to a process that allows TF32."""

import pytest
import torch
from test_losses import LOSSES, SETTINGS, B, D
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from dsf import precision
from dsf.losses import LossAverage

PLAIN = {"mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv"}


class Operators(TorchDispatchMode):
    """The names of all that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def operators(name, setting):
    """Of forward, backward and diagnostics."""
    kind, views, options = LOSSES[name]
    options = {**options, **SETTINGS[setting]}
    if issubclass(kind, LossAverage):
        options["views"] = views
    loss = kind(**options)
    out0, out1 = torch.randn(2, B, views, D, requires_grad=True)
    with Operators() as found:
        value, _ = loss.with_diagnostics(out0, out1)
        value.backward()
    return found.names


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", LOSSES)
def test_every_product_has_full_precision(name, setting, monkeypatch):
    monkeypatch.setattr(precision, "_may_be_rounded", lambda a: True)  # as on a GPU
    names = operators(name, setting)
    assert "full_matmul" in names
    assert not names & PLAIN


def test_it_would_notice_others():
    assert operators("cosine", "both") & PLAIN


@pytest.mark.parametrize(
    ("device", "dtype", "full"),
    [
        ("cuda", torch.float32, True),
        ("cuda", torch.float64, False),
        ("cpu", torch.float32, False),
    ],
)
def test_which_products_a_process_may_round(device, dtype, full):
    with FakeTensorMode(), Operators() as found:
        precision.matmul(*torch.ones(2, 3, 3, device=device, dtype=dtype))
    assert ("full_matmul" in found.names) == full


@pytest.mark.parametrize("dims", [(0, 0), (2, 1), (0, None), (None, 2)])
def test_under_vmap(dims, monkeypatch):
    monkeypatch.setattr(precision, "_may_be_rounded", lambda a: True)
    a = torch.randn([3] * (2 + (dims[0] is not None)), requires_grad=True)
    b = torch.randn([3] * (3 + (dims[1] is not None)))
    mapped, expected = (torch.vmap(f, in_dims=dims)(a, b) for f in (precision.matmul, torch.matmul))
    torch.testing.assert_close(mapped, expected)
    ours, theirs = (torch.autograd.grad(x.square().sum(), a)[0] for x in (mapped, expected))
    torch.testing.assert_close(ours, theirs)
