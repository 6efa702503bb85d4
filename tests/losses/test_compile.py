"""Losses under torch.compile, and on a CUDA device."""

from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dsf.losses import CosineLoss, DSFLoss, FeatureAverage, LossAverage, PolyView

B, M, D, K = 8, 4, 32, 24
SETTINGS = {"both": {}, "cross": {"in_batch": "cross"}, "queue": {"memory_bank_size": (K, D)}}
LOSSES = {
    "dsf": DSFLoss,
    "feature-average": FeatureAverage,
    "loss-average": LossAverage,
    "poly-view": partial(PolyView, "arithmetic"),
}
every_loss = pytest.mark.parametrize("kind", LOSSES.values(), ids=LOSSES)
every_setting = pytest.mark.parametrize("setting", SETTINGS)


def make(kind, setting, device="cpu"):
    options = dict(SETTINGS[setting])
    if kind not in (DSFLoss, FeatureAverage):
        options["views"] = M
    torch.manual_seed(0)
    return kind(**options).to(device)


def sides(device="cpu", seed=0):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(B, 1, D, generator=generator)
    noise = torch.randn(2, B, M, D, generator=generator)
    return [(base + 0.5 * side).to(device) for side in noise]


def run(loss, function, device="cpu"):
    """Three steps: losses, the last gradient, and the queue they leave."""
    values = []
    for seed in range(3):
        out0, out1 = sides(device, seed)
        out0.requires_grad_()
        value = function(out0, out1)
        (gradient,) = torch.autograd.grad(value, out0)
        values.append(value.detach())
    queue = [b for b in loss.buffers() if b.is_floating_point()]
    return [tensor.cpu() for tensor in (*values, gradient, *queue)]


def compare(ours, expected):
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * b.abs().max().item())


@pytest.mark.usefixtures("compiler")
@every_loss
@every_setting
def test_compiled_in_one_graph(kind, setting):
    eager, loss = make(kind, setting), make(kind, setting)
    compare(run(loss, torch.compile(loss, fullgraph=True)), run(eager, eager))


@every_loss
@every_setting
def test_nothing_looks_at_data(kind, setting):
    with FakeTensorMode():
        loss = make(kind, setting)
        out0 = torch.ones(B, M, D, requires_grad=True)
        value, diagnostics = loss.with_diagnostics(out0, torch.ones(B, M, D))
        value.backward()
        assert "margin" in diagnostics


@pytest.mark.gpu
class TestCuda:
    @every_loss
    @every_setting
    def test_same_as_cpu_and_no_synchronisation(self, kind, setting):
        cpu, gpu = make(kind, setting), make(kind, setting, "cuda")
        out0, out1 = sides("cuda")
        gpu.eval()
        gpu.with_diagnostics(out0, out1)
        torch.cuda.set_sync_debug_mode("error")
        try:
            gpu.with_diagnostics(out0.requires_grad_(), out1)[0].backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        gpu.train()
        compare(run(gpu, gpu, "cuda"), run(cpu, cpu))

    @every_loss
    @every_setting
    def test_compiled(self, kind, setting):
        torch._dynamo.reset()
        eager, loss = make(kind, setting), make(kind, setting, "cuda")
        compare(run(loss, torch.compile(loss, fullgraph=True), "cuda"), run(eager, eager))

    @pytest.mark.parametrize("compiled", [False, True])
    def test_tf32_changes_nothing(self, compiled):
        loss = CosineLoss(memory_bank_size=(4096, 512)).cuda().eval()
        function = torch.compile(loss, fullgraph=True) if compiled else loss
        generator = torch.Generator("cuda").manual_seed(0)
        out0, out1 = torch.randn(2, 256, 512, generator=generator, device="cuda")
        before = torch.get_float32_matmul_precision()
        results = []
        try:
            for precision in ("highest", "high"):
                torch.set_float32_matmul_precision(precision)
                query = out0.clone().requires_grad_()
                value = function(query, out1)
                results.append((value.detach(), *torch.autograd.grad(value, query)))
                assert torch.get_float32_matmul_precision() == precision
                probe = torch.randn(512, 512, device="cuda")
            error = (probe @ probe - (probe.double() @ probe.double()).float()).abs().max()
            assert error > 1e-3, "TF32 was to be on here"
        finally:
            torch.set_float32_matmul_precision(before)
        for full, tf32 in zip(*results):
            assert torch.equal(full, tf32)
