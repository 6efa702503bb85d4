import pytest
import torch

from dsf.data import EpochSampler

SIZE = 1003


def epoch(sampler, number=4, start=0):
    return list(sampler.batches(number, start))


def test_one_rank_sees_every_sample_once_but_the_rest():
    sampler = EpochSampler(SIZE, 10, seed=3, rank=0, world_size=1)
    batches = epoch(sampler)
    assert len(batches) == len(sampler) == 100
    assert all(batch.shape == (10,) and batch.dtype == torch.int64 for batch in batches)
    seen = torch.cat(batches)
    assert seen.unique().numel() == 1000
    assert 0 <= seen.min() <= seen.max() < SIZE


def test_two_ranks_see_disjoint_halves_of_one_permutation():
    whole = EpochSampler(SIZE, 10, seed=3, rank=0, world_size=1)
    halves = [EpochSampler(SIZE, 5, seed=3, rank=rank, world_size=2) for rank in (0, 1)]
    first, second = (torch.cat(epoch(half)) for half in halves)
    assert len(first) == len(second) == 500
    assert not set(first.tolist()) & set(second.tolist())
    assert torch.equal(torch.stack([first, second], 1).flatten(), whole.order(4)[:1000])
    # A step has the same samples, whoever takes them.
    for one, *two in zip(epoch(whole), *map(epoch, halves), strict=True):
        assert set(one.tolist()) == set(torch.cat(two).tolist())


def test_all_ranks_have_equally_many_batches():
    lengths = {len(epoch(EpochSampler(101, 7, rank=rank, world_size=3))) for rank in range(3)}
    assert lengths == {101 // 21}


def test_a_resume_continues_with_the_next_sample():
    for rank in (0, 1):
        sampler = EpochSampler(SIZE, 8, seed=1, rank=rank, world_size=2)
        batches = epoch(sampler)
        again = EpochSampler(SIZE, 8, seed=1, rank=rank, world_size=2)
        for start in (0, 1, 30, len(sampler)):
            rest = epoch(again, start=start)
            assert len(rest) == len(sampler) - start
            assert all(map(torch.equal, rest, batches[start:]))


def test_orders_differ_by_seed_and_epoch():
    order = EpochSampler(SIZE, 8, seed=1).order(0)
    assert torch.equal(order.sort().values, torch.arange(SIZE))
    for other in (EpochSampler(SIZE, 8, seed=1).order(1), EpochSampler(SIZE, 8, seed=2).order(0)):
        assert (order != other).float().mean() > 0.98


@pytest.mark.gpu
def test_the_order_does_not_depend_on_the_device():
    cpu, gpu = (EpochSampler(50_000, 8, seed=5, device=device) for device in ("cpu", "cuda"))
    assert gpu.order(7).is_cuda
    assert torch.equal(cpu.order(7), gpu.order(7).cpu())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, r"batch_size must be in \[1, 100\]"),
        ({"batch_size": 51, "rank": 0, "world_size": 2}, r"batch_size must be in \[1, 50\]"),
        ({"batch_size": 1, "rank": 2, "world_size": 2}, "rank must be in"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        EpochSampler(100, **options)


def test_wrong_starts_are_refused_at_once():
    sampler = EpochSampler(100, 10)
    with pytest.raises(ValueError, match=r"start must be in \[0, 10\]; got 11"):
        sampler.batches(0, start=11)
    with pytest.raises(ValueError, match="epoch must be >= 0"):
        sampler.batches(-1)
