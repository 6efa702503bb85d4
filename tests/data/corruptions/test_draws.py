import torch
from scipy import stats

from dsf.data.corruptions.draws import Draws


def draws(seed=0, corruption=0, severity=1, samples=20):
    return Draws(seed, corruption, severity, torch.arange(samples))


def test_distributions():
    normal = draws().normal(3, 33, 33)
    assert normal.shape == (20, 3, 33, 33)
    assert stats.kstest(normal.flatten().numpy(), "norm").pvalue > 0.01
    uniform = draws().uniform(2000, low=-2, high=3)
    assert stats.kstest(uniform.flatten().numpy(), "uniform", args=(-2, 5)).pvalue > 0.01
    assert draws().uniform().shape == (20,)


def test_neighbours_do_not_depend_on_each_other():
    normal = draws(samples=200).normal(31)
    correlation = torch.corrcoef(normal.T).fill_diagonal_(0)
    assert correlation.abs().max() < 5 / 200**0.5
    across = torch.corrcoef(draws(samples=20).normal(4000)).fill_diagonal_(0)
    assert across.abs().max() < 5 / 4000**0.5


def test_everything_that_names_a_draw_changes_it():
    first = draws().uniform(100)
    others = [draws(seed=1), draws(seed=2**40), draws(corruption=1), draws(severity=2)]
    again = draws()
    again.uniform(1)
    for other in (*others, again):
        assert (other.uniform(100) != first).all()
    assert torch.equal(draws().uniform(100), first)
    assert torch.equal(draws(samples=5).uniform(100), first[:5])
