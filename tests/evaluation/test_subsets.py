import pytest
import torch

from dsf.evaluation import few_labels, hold_out


class TestHoldOut:
    def test_is_stratified_and_complete(self):
        labels = torch.tensor([0] * 100 + [1] * 14 + [2] * 3 + [3] + [5] * 2)
        labels = labels[torch.randperm(len(labels))]
        held, rest = hold_out(labels, 0.1, seed=3)
        assert torch.equal(torch.cat([held, rest]).sort().values, torch.arange(len(labels)))
        assert torch.bincount(labels[held], minlength=6).tolist() == [10, 1, 1, 0, 0, 1]
        for part in (held, rest):
            assert torch.equal(part, part.sort().values)

    def test_depends_on_the_seed_only(self):
        labels = torch.randint(10, (500,))
        first, again, other = (hold_out(labels, 0.2, seed)[0] for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_is_random_within_a_class(self):
        labels = torch.zeros(1000, dtype=torch.int64)
        held, _ = hold_out(labels, 0.5, seed=0)
        assert 400 < held.double().mean() < 600
        assert 100 < (held.diff() > 1).sum() < 400

    def test_share_near_one_leaves_something(self):
        held, rest = hold_out(torch.tensor([0, 0, 0, 1, 1]), 0.99, seed=0)
        assert len(held) == 3
        assert len(rest) == 2

    def test_an_official_part(self):
        labels = torch.arange(10) % 2
        held, rest = hold_out(labels, 0.1, seed=0, official=torch.tensor([7, 2]))
        assert held.tolist() == [2, 7]
        assert rest.tolist() == [0, 1, 3, 4, 5, 6, 8, 9]
        for rows in (torch.arange(0), torch.arange(10)):
            with pytest.raises(ValueError, match="validation must be a part of the 10 training"):
                hold_out(labels, 0.1, seed=0, official=rows)


class TestFewLabels:
    def test_is_stratified_and_seeded(self):
        labels = torch.arange(1000) % 10
        rows = few_labels(labels, 0.1, seed=0)
        assert torch.bincount(labels[rows]).tolist() == [10] * 10
        assert torch.equal(rows, few_labels(labels, 0.1, seed=0))
        assert not torch.equal(rows, few_labels(labels, 0.1, seed=1))
        assert not torch.equal(rows, hold_out(labels, 0.1, seed=0)[0])

    def test_leaves_one_to_hold_out(self):
        labels = torch.tensor([0] * 100 + [1] * 30 + [2])
        rows = few_labels(labels, 0.01, seed=0)
        assert torch.bincount(labels[rows]).tolist() == [2, 2, 1]

    def test_the_whole_is_everything(self):
        labels = torch.randint(5, (77,))
        assert torch.equal(few_labels(labels, 1.0, seed=3), torch.arange(77))

    @pytest.mark.parametrize("share", [0, -0.1, 1.01])
    def test_errors(self, share):
        with pytest.raises(ValueError, match=r"labels, the share of them, must be in \(0, 1\]"):
            few_labels(torch.arange(4), share, seed=0)
