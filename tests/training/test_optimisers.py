import pytest
import torch
from torch import nn

from dsf.training import LARS, create_optimiser, parameter_groups


def network():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3, bias=False))
    return layers.double()


def lars_by_definition(module, buffers, lr, momentum, decay, trust):
    for parameter in module.parameters():
        vector = parameter.dim() <= 1
        update = parameter.grad + (0 if vector else decay) * parameter.detach()
        if not vector and parameter.norm() > 0 and update.norm() > 0:
            update = update * trust * parameter.detach().norm() / update.norm()
        buffer = buffers.get(parameter, torch.zeros_like(parameter)) * momentum + update
        buffers[parameter] = buffer
        parameter.data -= lr * buffer


def test_lars_is_its_definition():
    ours, expected = network(), network()
    ours[2].weight.data.zero_()
    expected[2].weight.data.zero_()
    groups = parameter_groups(ours, weight_decay=0.1)
    optimiser = create_optimiser("lars", groups, lr=0.5, momentum=0.8, trust=0.02)
    buffers = {}
    for _ in range(5):
        images = torch.randn(16, 4, dtype=torch.float64)
        for module in (ours, expected):
            module.zero_grad()
            module(images).square().sum().backward()
        optimiser.step()
        with torch.no_grad():
            lars_by_definition(expected, buffers, 0.5, 0.8, 0.1, 0.02)
        for one, other in zip(ours.parameters(), expected.parameters()):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_lars_closure_and_parameters_without_gradient():
    parameter, idle = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    optimiser = LARS([parameter, idle], lr=1.0)

    def closure():
        optimiser.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return loss

    assert optimiser.step(closure) == 4.0
    assert (parameter < 1).all()
    assert (idle == 1).all()
    with pytest.raises(ValueError, match="lr must be >= 0; got -1"):
        LARS([parameter], lr=-1)


def test_biases_and_norms_are_not_decayed():
    module = network()
    module[0].weight.requires_grad_(False)
    weights, vectors = parameter_groups(module, 0.1)
    assert weights["params"] == [module[2].weight]
    assert (weights["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert vectors["params"] == [module[0].bias, module[1].weight, module[1].bias]
    assert [group["weight_decay"] for group in parameter_groups(module, 0.1, True)] == [0.1, 0.1]


@pytest.mark.parametrize("name", ["sgd", "adamw", "lars"])
def test_all_parameters_move(name):
    module = network()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    optimiser = create_optimiser(name, parameter_groups(module, 0.1), lr=0.1)
    module(torch.randn(8, 4, dtype=torch.float64)).square().sum().backward()
    optimiser.step()
    for parameter, old in zip(module.parameters(), before):
        assert not parameter.equal(old)


def test_unknown():
    with pytest.raises(ValueError, match="optimiser must be one of sgd, lars, adamw; got 'adam'"):
        create_optimiser("adam", [], 0.1)
