"""Losses that compute their logits in blocks equal those that compute them at once."""

import pytest
import torch
from test_losses import LOSSES, SETTINGS, features, make
from torch.autograd import gradcheck, gradgradcheck

from dsf.losses.streaming import streaming_logsumexp

FACTORED = [
    name for name in LOSSES if not name.startswith("dsf-") or "divergence" not in LOSSES[name][2]
]


def results(name, setting, **options):
    loss, views = make(name, setting, **options)
    loss.temperature = torch.tensor(0.7, dtype=torch.float64)
    sides = features(views)
    inputs = [tensor.requires_grad_() for tensor in (*sides, loss.temperature)]
    value, diagnostics = loss.with_diagnostics(*sides)
    return value, *torch.autograd.grad(value, inputs), diagnostics


@pytest.mark.parametrize("block", [1, 4, 100])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", FACTORED)
def test_blocks_change_nothing(name, setting, block):
    expected = results(name, setting)
    ours = results(name, setting, block_size=block)
    torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-12)


class TestLogSumExp:
    def arguments(self):
        x = torch.randn(2, 1, 5, 3, dtype=torch.float64, requires_grad=True)
        y = torch.randn(4, 7, 3, dtype=torch.float64, requires_grad=True)
        b = torch.randn(7, dtype=torch.float64, requires_grad=True)
        skip = torch.tensor([[0, 1], [1, 6], [2, 2], [3, 0], [6, 5]])
        return x, y, b, skip

    @pytest.mark.parametrize("block", [1, 3, 7])
    def test_value_and_gradients(self, block):
        x, y, b, skip = self.arguments()
        logits = (x @ y.mT - b).scatter(-1, skip.expand(2, 4, 5, 2), -torch.inf)
        ours = streaming_logsumexp(x, y, b, skip, block)
        torch.testing.assert_close(ours, logits.logsumexp(dim=-1))
        assert gradcheck(lambda *args: streaming_logsumexp(*args, skip, block), (x, y, b))
        assert gradcheck(lambda *args: streaming_logsumexp(*args, None, None, block), (x, y))

    def test_only_what_is_asked_for(self):
        x, y, b, skip = self.arguments()
        total = streaming_logsumexp(x, y.detach(), b.detach(), skip, 3).sum()
        expected = streaming_logsumexp(x, y, b, skip, 3).sum()
        assert torch.equal(*(torch.autograd.grad(value, x)[0] for value in (total, expected)))

    def test_large_logits(self):
        x, y, b, _ = self.arguments()
        torch.testing.assert_close(
            streaming_logsumexp(1e3 * x, y, b, None, 2), (1e3 * x @ y.mT - b).logsumexp(dim=-1)
        )

    def test_rows_that_leave_everything_out(self):
        x = torch.randn(2, 3, requires_grad=True)
        skip = torch.tensor([[0, 1], [0, 0]])
        total = streaming_logsumexp(x, torch.randn(2, 3), None, skip, 1)
        assert total[0] == -torch.inf
        assert total[1].isfinite()
        total[1].backward()
        assert x.grad.isfinite().all()

    def test_second_derivatives(self):
        x, y, b, skip = self.arguments()
        assert gradgradcheck(lambda *args: streaming_logsumexp(*args, block=3), (x[0, 0], y[0]))
        assert gradgradcheck(lambda x: streaming_logsumexp(x, y[0], b, skip, 3), x[0, 0])

    def test_block_size(self):
        x, y, b, skip = self.arguments()
        with pytest.raises(ValueError, match="block must be at least 1; got 0"):
            streaming_logsumexp(x, y, b, skip, 0)

    def test_memory(self):
        """The largest tensor is a block, forward and backward."""
        n, count, block = 64, 4096, 128
        x, y = torch.randn(n, 8, requires_grad=True), torch.randn(count, 8, requires_grad=True)
        with Largest() as largest:
            streaming_logsumexp(x, y, None, None, block).sum().backward()
        assert largest.numel <= max(n * block, y.numel())


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("setting", ["both", "queue"])
def test_compiled(setting):
    loss, views = make("dsf-paper", setting, block_size=4)
    sides = [side.requires_grad_() for side in features(views)]
    expected = torch.autograd.grad(loss(*sides), sides)
    ours = torch.autograd.grad(torch.compile(loss, fullgraph=True)(*sides), sides)
    torch.testing.assert_close(ours, expected)
