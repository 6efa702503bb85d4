import pytest
import torch

from dsf.random import permutation, philox, some, uniform

# Salmon et al.'s known answers for Philox4x32-10.
KNOWN = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        0xFFFFFFFFFFFFFFFF,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def words(*values, device="cpu"):
    return tuple(torch.tensor(value, device=device) for value in values)


@pytest.mark.parametrize(("counter", "seed", "expected"), KNOWN)
def test_known_answers(counter, seed, expected):
    assert tuple(philox(seed, words(*counter)).tolist()) == expected


def test_a_number_depends_on_its_counter_only():
    samples = torch.arange(64)
    zero = torch.zeros((), dtype=torch.int64)
    whole = philox(3, (samples, zero + 1, zero, zero + 2))
    part = philox(3, (samples[40:], zero + 1, zero, zero + 2))
    assert torch.equal(whole[40:], part)
    assert not torch.equal(whole, philox(4, (samples, zero + 1, zero, zero + 2)))


@pytest.mark.usefixtures("compiler")
def test_compiled_bits_are_the_same():
    samples = torch.arange(2**20, 2**20 + 1000)
    compiled = torch.compile(lambda counter: philox(2**40 + 5, counter), fullgraph=True)
    counter = (samples, samples.flip(0), *words(7, 2**31 + 9))
    assert torch.equal(compiled(counter), philox(2**40 + 5, counter))


@pytest.mark.gpu
def test_bits_on_cuda_are_the_same():
    samples = torch.arange(2**31, 2**31 + 1000)
    counter = (samples, *words(1, 2, 3))
    expected = philox(9, counter)
    on_gpu = tuple(word.cuda() for word in counter)
    assert torch.equal(philox(9, on_gpu).cpu(), expected)
    compiled = torch.compile(philox, fullgraph=True)
    assert torch.equal(compiled(9, on_gpu).cpu(), expected)


def test_uniform():
    bits = torch.tensor([0, 255, 256, 2**32 - 1])
    assert uniform(bits).tolist() == [0, 0, 2**-24, 1 - 2**-24]
    zero = torch.zeros((), dtype=torch.int64)
    draws = uniform(philox(0, (torch.arange(50_000), zero, zero, zero))).double()
    edges = torch.linspace(0, 1, 200_000, dtype=torch.float64)
    distance = (draws.flatten().sort().values - edges).abs().max()
    assert distance < 1.63 / 200_000**0.5  # Kolmogorov-Smirnov at 1 %, for this seed


def test_permutations():
    indices = torch.arange(1024)
    step = torch.tensor(5)
    order = permutation(1, step, 0, indices)
    assert torch.equal(order.sort().values, indices)
    assert torch.equal(order, permutation(1, torch.tensor(5), 0, indices))
    for other in (
        permutation(2, step, 0, indices),
        permutation(1, step + 1, 0, indices),
        permutation(1, step + 2**32, 0, indices),
        permutation(1, step, 1, indices),
    ):
        assert (order != other).float().mean() > 0.99


def test_seed_out_of_range():
    with pytest.raises(ValueError, match="seed must be in"):
        philox(-1, words(0, 0, 0, 0))


def test_some():
    assert some(5, 9).tolist() == list(range(5))
    chosen = some(1000, 100)
    assert len(chosen.unique()) == 100
    assert torch.equal(chosen, chosen.sort().values)
    assert set(chosen.tolist()) < set(some(1000, 300).tolist())
    # In equal shares of every part, but for chance: four standard deviations.
    assert (torch.bincount(some(10_000, 1000) // 1000) - 100).abs().max() < 4 * 9
