"""The Triton kernels against the definition: on a CPU by Triton's interpreter, and on a GPU."""

import importlib.util
from unittest.mock import patch

import pytest
import torch
from interpreting import correct_bfloat16, interpret

from dsf.losses import DSFLoss, LossAverage, PolyView, streaming
from dsf.losses.streaming import _of_all_problems, streaming_logsumexp

needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

# rows, keys, dimensions, skipped columns a row, whether there is a b
SHAPES = [
    (1, 1, 5, 0, False),
    (70, 150, 24, 2, True),
    (64, 64, 16, 0, False),
    (5, 300, 128, 1, True),
    (130, 20, 7, 0, True),
]


def problem(rows, keys, width, skipped, with_b, dtype=torch.float32):
    torch.manual_seed(rows)
    x, y = (torch.randn(n, width, dtype=dtype, requires_grad=True) for n in (rows, keys))
    b = torch.randn(keys, dtype=dtype, requires_grad=True) if with_b else None
    skip = torch.randint(0, keys, (rows, skipped)) if skipped else None
    return x, y, b, skip, torch.randn(rows, dtype=dtype)


def definition(x, y, b, skip, gradient):
    logits = x @ y.mT if b is None else x @ y.mT - b
    if skip is not None:
        logits = logits.scatter(-1, skip, -torch.inf)
    total = logits.logsumexp(dim=-1)
    inputs = [tensor for tensor in (x, y, b) if tensor is not None]
    return total, *torch.autograd.grad(total, inputs, gradient)


def compare_interpreted():
    """Compare both; runs in a process of its own, whose Triton interprets."""
    from dsf.losses import _kernels

    correct_bfloat16()
    # An axis in one part, or in several.
    for count, tile in ((1, _kernels._HOPPER), (8, _kernels._ANY), (512, _kernels._HOPPER)):
        _kernels._PROGRAMS, _kernels._ANY = count, tile
        for shape in SHAPES:
            *tensors, gradient = problem(*shape)
            expected = definition(*tensors, gradient)
            inputs = [tensor for tensor in tensors[:3] if tensor is not None]
            total = _of_all_problems(*tensors, True)
            ours = (total, *torch.autograd.grad(total, inputs, gradient))
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=2e-5)
    with patch.object(streaming, "_multiplies_bfloat16", lambda device: False):  # in blocks
        total = _of_all_problems(*tensors, True)
        ours = (total, *torch.autograd.grad(total, inputs, gradient))
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=2e-5)
    x, y, b, skip = tensors
    for of_x, of_y in ((True, False), (False, True)):
        plain = [x.detach().requires_grad_(of_x), y.detach().requires_grad_(of_y)]
        total = _of_all_problems(*plain, b.detach(), skip, of_x)
        (found,) = torch.autograd.grad(total, plain[of_y], gradient, create_graph=True)
        torch.testing.assert_close(found, expected[1 + of_y], rtol=1e-5, atol=2e-5)
        with pytest.raises(RuntimeError, match="no autograd formula"):
            found.sum().backward()
    nothing = torch.zeros(2, 1, dtype=torch.int64)
    x, y = torch.randn(2, 16, requires_grad=True), torch.randn(1, 16, requires_grad=True)
    total = _of_all_problems(x, y, None, nothing, True)
    assert (total == -torch.inf).all()
    assert all((found == 0).all() for found in torch.autograd.grad(total.sum(), (x, y)))
    # The parts of very large factors. Memory is taken where it is written to only.
    x, count = torch.randn(1024), 2**30
    parts = torch.empty(2 * count + 1024, dtype=torch.bfloat16)
    _kernels._split[1,](x, parts, count, SIZE=1024)
    places = torch.arange(1024)
    total = sum(parts[place + places].float() for place in (0, count, 2 * count))
    torch.testing.assert_close(total, x, rtol=1e-6, atol=0)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_interpreted():
    run = interpret(__file__)
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("width", [128, 256])
@pytest.mark.parametrize(
    ("capability", "room"), [(89, 101_376), (90, 232_448)], ids=["4090", "H100"]
)
def test_compiles_for_gpus_that_are_not_here(capability, room, width):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from dsf.losses import _kernels

    tile = (_kernels._HOPPER if capability == 90 else _kernels._ANY).narrow(width)
    tensor = torch.empty(0, 2)
    constants = _kernels._shape(tile, width, tensor, tensor)
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    target = GPUTarget("cuda", capability, 32)
    for kernel, more in ((_kernels._forward, {"MEAN": True}), (_kernels._backward, {})):
        known = constants | more
        kinds = {"x": "*bf16", "y": "*bf16", "skip": "*i64", "N": "i32", "M": "i32", "part": "i32"}
        signature = {
            name: "constexpr" if name in known else kinds.get(name, "*fp32")
            for name in kernel.arg_names
        }
        compiled = triton.compile(ASTSource(kernel, signature, known), target, options)
        assert compiled.metadata.shared <= room


class TestChoice:
    """Which way is taken; what comes out is the same."""

    def ways(self, monkeypatch, loss, rows, m=1, keys=None):
        taken = []
        for name in ("_dense", "_streaming"):
            way = getattr(loss, name)
            monkeypatch.setattr(loss, name, lambda *a, n=name, w=way: taken.append(n) or w(*a))
        loss(torch.randn(rows, m, 8), torch.randn(rows, keys or m, 8))
        return taken

    @pytest.mark.parametrize(
        ("options", "rows", "m", "large"),
        [
            ({"memory_bank_size": (64, 8)}, 4, 2, 256),
            ({"in_batch": "cross"}, 16, 2, 256),
            ({"in_batch": "both"}, 8, 2, 256),
        ],
    )
    def test_by_size(self, monkeypatch, options, rows, m, large):
        for limit, expected in ((large, "_dense"), (large - 1, "_streaming")):
            monkeypatch.setattr("dsf.losses._base._LARGE", limit)
            assert self.ways(monkeypatch, DSFLoss(**options), rows, m=m) == [expected]

    @pytest.mark.parametrize(
        ("kind", "options", "m", "keys", "large"),
        [
            (LossAverage, {"memory_bank_size": (64, 8), "views": 3}, 3, 3, 4 * 64 * 9),
            (LossAverage, {"memory_bank_size": (64, 8), "views": 5}, 1, 5, 4 * 64 * 5),
            (LossAverage, {"memory_bank_size": (64, 8)}, 5, 1, 4 * 64 * 5),
            (LossAverage, {"in_batch": "cross"}, 2, 3, 4 * 4 * 6),
            (LossAverage, {}, 2, 3, 8 * 8 * 6),
            (PolyView, {"memory_bank_size": (64, 8), "views": 5}, 1, 5, 4 * 64 * 5),
            (PolyView, {"in_batch": "cross"}, 2, 3, 4 * 4 * 6),
            (PolyView, {}, 1, 3, 4 * 4 * 16),
        ],
    )
    def test_pairs_of_views_count(self, monkeypatch, kind, options, m, keys, large):
        for limit, expected in ((large, "_dense"), (large - 1, "_streaming")):
            monkeypatch.setattr("dsf.losses._base._LARGE", limit)
            assert self.ways(monkeypatch, kind(**options), 4, m, keys) == [expected]

    def test_forced(self, monkeypatch):
        assert self.ways(monkeypatch, DSFLoss(block_size=3), 4) == ["_streaming"]
        monkeypatch.setattr("dsf.losses._base._LARGE", 0)
        assert self.ways(monkeypatch, DSFLoss(block_size=None), 4) == ["_dense"]
        jeffreys = DSFLoss(mode="exact", divergence="jeffreys")  # which is no matrix product
        assert self.ways(monkeypatch, jeffreys, 4) == ["_dense"]
        jeffreys.block_size = 3  # past the constructor, which refuses it
        assert self.ways(monkeypatch, jeffreys, 4) == ["_dense"]

    def test_errors(self):
        with pytest.raises(ValueError, match="block_size must be 'auto', None.*got 'all'"):
            DSFLoss(block_size="all")
        with pytest.raises(ValueError, match="at least 1; got 0"):
            DSFLoss(block_size=0)


@pytest.mark.gpu
class TestCUDA:
    @pytest.mark.parametrize(
        "shape", [*SHAPES, (1000, 5000, 128, 2, True), (77, 999, 256, 0, True)]
    )
    def test_equals_float64(self, shape):
        *tensors, gradient = problem(*shape, dtype=torch.float64)
        expected = definition(*tensors, gradient)
        x, y, b = (
            None if tensor is None else tensor.detach().float().cuda().requires_grad_()
            for tensor in tensors[:3]
        )
        skip = None if tensors[3] is None else tensors[3].cuda()
        for function in (streaming_logsumexp, torch.compile(streaming_logsumexp, fullgraph=True)):
            total = function(x, y, b, skip)
            inputs = [tensor for tensor in (x, y, b) if tensor is not None]
            ours = (total, *torch.autograd.grad(total, inputs, gradient.float().cuda()))
            for found, wanted in zip(ours, expected, strict=True):
                error = (found.double().cpu() - wanted).norm() / wanted.norm()
                assert error < 1e-5

    @pytest.mark.parametrize("device", ["cuda:0", pytest.param("cuda:1", marks=needs_two)])
    def test_problems_with_leading_dimensions(self, device):
        x = torch.randn(2, 1, 50, 16, device=device, requires_grad=True)
        y = torch.randn(3, 70, 16, device=device, requires_grad=True)
        total = streaming_logsumexp(x, y)
        expected = (x @ y.mT).logsumexp(dim=-1)
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)
        ours, theirs = (torch.autograd.grad(t.sum(), (x, y)) for t in (total, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)

    def test_no_matrix_and_no_waiting(self):
        x = torch.randn(2048, 128, device="cuda", requires_grad=True)
        y = torch.randn(32_768, 128, device="cuda")
        streaming_logsumexp(x, y).sum().backward()  # compiles
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.set_sync_debug_mode("error")
        try:
            streaming_logsumexp(x, y).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.cuda.max_memory_allocated() - before < 0.2 * 4 * 2048 * 32_768


if __name__ == "__main__":
    compare_interpreted()
