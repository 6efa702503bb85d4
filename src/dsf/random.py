"""Counter-based random numbers: the same bits on every device, in every batch, on every rank."""

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = 0xFFFFFFFF
_CHOICE = 0x50E3  # of all streams that of `some`


def philox(seed: int, counter: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """Philox4x32-10 (Salmon et al., 2011): four words of 32 random bits for each counter.

    A random number is a pure function of the seed and of what the counter names, say a step and a
    sample: nothing has a state that batches, ranks, devices or a resume could disturb.

    Args:
        seed: 64 bits, the key.
        counter: four integer tensors that broadcast together, each within [0, 2^32), the least
            significant first. Under ``torch.compile`` on the CPU pass aranges in from outside the
            graph: Inductor computes with them in 32 bits.

    Returns:
        (..., 4) in int64, each within [0, 2^32).
    """
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be in [0, 2^64); got {seed}")
    a, b, c, d = torch.broadcast_tensors(*(word.to(torch.int64) for word in counter))
    key0, key1 = seed & _LOW, seed >> 32
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(a, _MULTIPLIERS[0])
        high1, low1 = _multiply(c, _MULTIPLIERS[1])
        a, b, c, d = high1 ^ b ^ key0, low1, high0 ^ d ^ key1, low0
        key0, key1 = (key0 + _WEYL[0]) & _LOW, (key1 + _WEYL[1]) & _LOW
    return torch.stack([a, b, c, d], dim=-1)


def uniform(bits: Tensor) -> Tensor:
    """float32 in [0, 1) from words of 32 random bits, of which it keeps 24."""
    return (bits >> 8).to(torch.float32) * 2.0**-24


def permutation(seed: int, step: Tensor, stream: int, indices: Tensor) -> Tensor:
    """A random permutation of ``indices`` = arange(n), one for each (seed, step, stream).

    ``step`` is an integer scalar on their device; nothing synchronises. All four words of a
    counter take part in the order, so that ties do not occur in practice.
    """
    zero = torch.zeros_like(indices)
    words = philox(seed, (indices, step & _LOW, step >> 32, zero + stream))
    order = (words[..., 0] << 31) | (words[..., 1] >> 1)
    return order.argsort(stable=True)


def some(count: int, limit: int) -> Tensor:
    """At most ``limit`` of the integers below ``count``: by chance, always the same, in order.

    Whatever lies in order, such as the images of a class, is there in its share. A smaller choice
    is part of a larger one.

    Example:
        >>> some(10, 4), some(3, 4)
        (tensor([0, 3, 6, 8]), tensor([0, 1, 2]))
    """
    order = permutation(0, torch.tensor(0), _CHOICE, torch.arange(count))
    return order[:limit].sort().values


def _multiply(x: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    # The 64-bit product of two 32-bit words in 16-bit steps: a signed 64-bit one would overflow.
    low = x * (constant & 0xFFFF)
    middle = x * (constant >> 16) + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)
