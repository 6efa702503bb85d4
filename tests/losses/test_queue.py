import pytest
import torch

from dsf.losses.queue import Queue


def fill(queue, *sizes):
    """Write 0, 1, 2, ... in batches of these sizes; return what each slot holds."""
    start = 0
    for size in sizes:
        values = torch.arange(start, start + size, dtype=torch.float32)
        queue.write(values.unsqueeze(1), values)
        start += size
    return queue.kappa.tolist()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([3], [0, 1, 2, 0, 0]),
        ([3, 2], [0, 1, 2, 3, 4]),
        ([3, 3], [5, 1, 2, 3, 4]),
        ([5], [0, 1, 2, 3, 4]),
        ([7], [5, 6, 2, 3, 4]),
        ([2, 7], [5, 6, 7, 8, 4]),
        ([13], [10, 11, 12, 8, 9]),
        ([1, 1, 1, 1, 1, 1], [5, 1, 2, 3, 4]),
    ],
)
def test_wraps_around(sizes, expected):
    queue = Queue(5, mu=(1,), kappa=())
    assert fill(queue, *sizes) == expected
    assert queue.filled.item() == min(5, sum(sizes))
    assert queue.position.item() == sum(sizes) % 5


def test_is_saved():
    queue, other = Queue(5, mu=(2,), kappa=()), Queue(5, mu=(2,), kappa=())
    queue.write(torch.randn(3, 2), torch.rand(3))
    other.load_state_dict(queue.state_dict())
    for name, buffer in queue.state_dict().items():
        assert torch.equal(buffer, other.state_dict()[name])
    assert {"mu", "kappa", "position", "filled"} == set(queue.state_dict())


def test_reads_copies_in_the_asked_precision():
    queue = Queue(4, mu=(3,))
    (mu,) = queue.read(torch.ones(1, dtype=torch.float64))
    assert mu.dtype is torch.float64
    (mu,) = queue.read(torch.ones(1))
    mu.zero_()
    torch.testing.assert_close(queue.mu.norm(dim=-1), torch.ones(4))


def test_bad_size():
    with pytest.raises(ValueError, match="at least 1; got 0"):
        Queue(0, mu=(3,))
