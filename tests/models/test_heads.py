import pytest
import torch
from torch import nn

from dsf.models import create_head


def layers(head):
    names = {nn.Linear: "linear", nn.ReLU: "relu", nn.BatchNorm1d: "bn"}
    return [names[type(layer)] for layer in head]


@pytest.mark.parametrize(
    ("name", "expected", "hidden"),
    [
        ("mlp", "linear relu linear", 24),
        ("mlp-bn", "linear bn relu linear bn", 24),
        ("mocov3-projector", "linear bn relu linear bn relu linear bn", 4096),
        ("mocov3-predictor", "linear bn relu linear bn", 4096),
    ],
)
def test_layers(name, expected, hidden):
    head = create_head(name, 24, 6)
    assert layers(head) == expected.split()
    assert head[0].out_features == hidden
    assert head(torch.randn(4, 24)).shape == (4, 6)
    assert create_head(name, 24, 6, hidden=9)[0].out_features == 9
    norms = [layer for layer in head if isinstance(layer, nn.BatchNorm1d)]
    assert [norm.affine for norm in norms] == [True] * (len(norms) - 1) + [False] * bool(norms)
    assert (head[0].bias is None) == bool(norms)


def test_batch_norm_spreads_features_that_nearly_coincide():
    features = torch.randn(1, 32) + 1e-3 * torch.randn(64, 32)
    plain, spread = (
        nn.functional.normalize(create_head(name, 32, 16)(features), dim=-1)
        for name in ("mlp", "mlp-bn")
    )
    assert (plain @ plain.T).mean() > 0.999
    assert (spread @ spread.T).mean() < 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: create_head("mpl", 4, 4), "head must be one of.*'mlp'.*got 'mpl'"),
        (lambda: create_head("mlp", 4, 0), "outputs must be at least 1; got 0"),
        (lambda: create_head("mlp", 4, 4, hidden=-1), "hidden must be at least 1; got -1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
