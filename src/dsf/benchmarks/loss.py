"""What the losses cost, forward and backward: ``dsf bench loss``."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from dsf.benchmarks.report import (
    Report,
    can_compile,
    cuda_milliseconds,
    graph_milliseconds,
    milliseconds,
    peak_mib,
    provenance,
    save,
    show,
)
from dsf.losses import DSFLoss, FeatureAverage, LossAverage, streaming
from dsf.losses.queue import Queue

N, M, K, D = 256, 4, 4096, 128
LARGE = {"cuda": (4096, 65_536), "cpu": (1024, 16_384)}  # images and keys of the first table
SEED = 0


class _ThreeTerms(nn.Module):
    """The published similarity as it is written: every term as an N x K matrix.

    log I_nu comes from the uniform expansion with the polynomials U_0 to U_3, kappa of the queue
    is the mean of the batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(K, mu=(D,))

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        mu_q, r_q, kappa_q = self.estimate(out0)
        mu_k, _, kappa_k = self.estimate(out1)
        kappa = torch.cat([kappa_q, kappa_k]).mean().detach().expand(K)
        (queue,) = self.queue.read(mu_q)
        negative = self.similarity(r_q[:, None], kappa_q[:, None], kappa, mu_q @ queue.T)
        positive = self.similarity(r_q, kappa_q, kappa_k, (mu_q * mu_k).sum(-1))
        logits = torch.cat([positive[:, None], negative], dim=1)
        loss = cross_entropy(logits, torch.zeros(N, dtype=torch.int64, device=logits.device))
        self.queue.write(mu_k)
        return loss

    def estimate(self, views: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = normalize(views, dim=-1).mean(1)
        length = mean.norm(dim=-1)
        r = 0.95 * length
        return mean / length[:, None], r, r * (D - r**2) / (1 - r**2) / D

    def similarity(self, r: Tensor, k_i: Tensor, k_j: Tensor, cos: Tensor) -> Tensor:
        nu = D / 2 - 1
        first = nu * torch.log(k_i / k_j)
        second = self.log_bessel(k_j, nu) - self.log_bessel(k_i, nu)
        third = r * (k_i - k_j * cos)
        return -(first + second + third)

    def log_bessel(self, k: Tensor, nu: float) -> Tensor:
        z = k / nu
        root = torch.sqrt(1 + z**2)
        x = 1 / root
        eta = root + torch.log(z / (1 + root))
        u1 = (3 * x - 5 * x**3) / 24
        u2 = (81 * x**2 - 462 * x**4 + 385 * x**6) / 1152
        u3 = (30375 * x**3 - 369603 * x**5 + 765765 * x**7 - 425425 * x**9) / 414720
        total = 1 + u1 / nu + u2 / nu**2 + u3 / nu**3
        return nu * eta - 0.25 * torch.log(1 + z**2) + torch.log(total)


def _candidates() -> dict[str, nn.Module]:
    bank = (K, D)
    return {
        "FeatureAverage": FeatureAverage(memory_bank_size=bank),
        "DSF": DSFLoss(memory_bank_size=bank),
        "DSF, kappa of the batch": DSFLoss(memory_bank_size=bank, queue_kappa="batch-mean"),
        "DSF exact": DSFLoss(memory_bank_size=bank, mode="exact"),
        "LossAverage": LossAverage(memory_bank_size=bank, views=M),
        "three N x K terms": _ThreeTerms(),
    }


def _step(loss: Callable[[Tensor, Tensor], Tensor], out0: Tensor, out1: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(loss(out0, out1), out0)
    return gradient


def _measure(device: str, repeats: int) -> list[Report]:
    torch.manual_seed(SEED)
    base = torch.randn(N, 1, D, device=device)
    out0, out1 = (base + 0.5 * torch.randn(N, M, D, device=device) for _ in range(2))
    out0.requires_grad_()
    compiles = can_compile(device)
    rows: list[Report] = []
    for name, loss in _candidates().items():
        loss = loss.to(device)
        row: Report = {"loss": name}
        torch._dynamo.reset()
        before = copy.deepcopy(loss)
        ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"eager": loss}
        if compiles:
            ways["compiled"] = torch.compile(loss, fullgraph=True)
        for how, function in ways.items():
            loss.load_state_dict(before.state_dict())
            gradient = _step(function, out0, out1)
            if how == "eager":
                expected = gradient
            torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-7)
            row[f"{how}_ms"] = milliseconds(partial(_step, function, out0, out1), device, repeats)
            if device == "cuda":
                row[f"{how}_MiB"] = peak_mib(partial(_step, function, out0, out1))
        if device == "cuda" and compiles:
            row["graph_ms"] = graph_milliseconds(partial(_step, function, out0, out1))
            torch._dynamo.reset()
            function = torch.compile(loss, fullgraph=True, mode="reduce-overhead")
            row["cudagraphs_ms"] = cuda_milliseconds(partial(_step, function, out0, out1), 300)
        rows.append(row)
    time = "eager_ms" if not compiles else "graph_ms" if device == "cuda" else "compiled_ms"
    for row in rows:
        row["times_FeatureAverage"] = row[time] / rows[0][time]
    return rows


def _measure_streaming(device: str, repeats: int) -> list[Report]:
    n, keys = LARGE[device]
    losses = {"queue": DSFLoss(memory_bank_size=(keys, D)), "batch": DSFLoss(in_batch="both")}
    return [
        row
        for negatives, loss in losses.items()
        for row in _ways(loss, negatives, n, device, repeats)
    ]


def _ways(loss: DSFLoss, negatives: str, n: int, device: str, repeats: int) -> list[Report]:
    """One loss with its logits stored, in blocks, and by the kernels."""
    torch.manual_seed(SEED)
    out0, out1 = (torch.randn(n, M, D, device=device) for _ in range(2))
    loss = loss.to(device).eval()
    loss.block_size = None
    exact = _step(copy.deepcopy(loss).double(), out0.double().requires_grad_(), out1.double())
    out0.requires_grad_()
    size = {"N": n, "K": loss.queue.size if loss.queue is not None else 2 * n}
    compiles = device == "cuda" and can_compile(device)
    rows: list[Report] = []
    for name, kernel in {"stored": True, "blocks": False, "kernel": True}.items():
        if name == "kernel" and device == "cpu":
            continue
        loss.block_size = None if name == "stored" else 4096
        row: Report = {"negatives": negatives, "logits": name, **size}
        torch._dynamo.reset()
        ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"eager": loss}
        if compiles:
            ways["compiled"] = torch.compile(loss, fullgraph=True)
        with patch.object(streaming, "_HAS_TRITON", kernel):
            for how, function in ways.items():
                step = partial(_step, function, out0, out1)
                error = ((step().double() - exact).norm() / exact.norm()).item()
                row["error"] = max(error, row.get("error", 0.0))
                row[f"{how}_ms"] = milliseconds(step, device, repeats)
                if device == "cuda":
                    row[f"{how}_MiB"] = peak_mib(step)
        rows.append(row)
    for row in rows:
        for how in ways:
            row[f"{how}_times_stored"] = row[f"{how}_ms"] / rows[0][f"{how}_ms"]
            if device == "cuda":
                row[f"{how}_memory_of_stored"] = row[f"{how}_MiB"] / rows[0][f"{how}_MiB"]
    return rows


def run(command: str, repeats: int, path: Path | None) -> None:
    """Measure; see :mod:`dsf.benchmarks`."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = {"N": N, "m": M, "K": K, "D": D}
    report: Report = {"provenance": provenance(command, seed=SEED, device=device, **sizes)}
    try:
        report["streaming"] = _measure_streaming(device, max(1, repeats // 5))
    except torch.OutOfMemoryError:
        print("too little memory for 1 GiB of logits beside float64: left out")
    else:
        show("DSF with its logits stored, and streamed", report["streaming"])
        save(report, path)
    report["losses"] = _measure(device, repeats)
    show(f"forward and backward on {report['provenance']['gpu'] or device}", report["losses"])
    save(report, path)
