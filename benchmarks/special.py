"""Speed and range of the vMF special functions against SciPy's Bessel functions.

    python benchmarks/special.py [--json FILE]

The rival is what everybody does: two calls of ``scipy.special.ive``, of orders p/2 - 1 and p/2,
from which log-partition and ratio follow. We compute log-partition and ratio of the same 65,536
values, on one thread, eagerly and compiled, in the same run. Times are medians; on a shared
machine only the ratios mean anything. A second table lists where SciPy's pair returns 0, inf or
NaN and we do not, and a third, where there is a CUDA device, the times there.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.special
import torch
from torch import Tensor

from dsf.benchmarks.report import Report, cuda_milliseconds, parse, provenance, save, show
from dsf.vmf import bessel_ratio, log_partition

VALUES = 65_536
P = 128
SEED = 0


def log_partition_and_ratio(kappa: Tensor, p: int) -> tuple[Tensor, Tensor]:
    return (
        log_partition(kappa, p, validate_args=False),
        bessel_ratio(kappa, p, validate_args=False),
    )


def scipy_pair(kappa: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    return scipy.special.ive(p / 2 - 1, kappa), scipy.special.ive(p / 2, kappa)


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def speed(repeats: int) -> list[dict[str, object]]:
    torch.set_num_threads(1)
    # kappa from a thousandth to a thousand times p: below, SciPy returns zeros early and fast.
    kappa = np.exp(np.random.default_rng(SEED).uniform(np.log(1e-3 * P), np.log(1e3 * P), VALUES))
    rival = median_seconds(lambda: scipy_pair(kappa, P), repeats)
    rows: list[dict[str, object]] = [
        {"what": "SciPy ive pair, float64", "ms": 1e3 * rival, "times_faster": 1.0}
    ]
    for dtype in (torch.float64, torch.float32):
        x = torch.from_numpy(kappa).to(dtype)
        compiled = torch.compile(log_partition_and_ratio, fullgraph=True)
        start = time.perf_counter()
        compiled(x, P)
        cold = time.perf_counter() - start
        for name, function in (("eager", log_partition_and_ratio), ("compiled", compiled)):
            ours = median_seconds(lambda f=function, x=x: f(x, P), repeats)
            row = {"what": f"dsf {name}, {str(dtype).removeprefix('torch.')}", "ms": 1e3 * ours}
            row["times_faster"] = rival / ours
            if name == "compiled":
                row["compile_s"] = cold
            rows.append(row)
    return rows


def cuda_speed() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    kappa = torch.rand(VALUES, device="cuda") * 10 * P
    compiled = torch.compile(log_partition_and_ratio, fullgraph=True)
    for dtype in (torch.float64, torch.float32):
        x = kappa.to(dtype)
        for name, function in (("eager", log_partition_and_ratio), ("compiled", compiled)):
            milliseconds = cuda_milliseconds(lambda f=function, x=x: f(x, P))
            what = f"dsf {name}, {str(dtype).removeprefix('torch.')}, CUDA"
            rows.append({"what": what, "ms": milliseconds})
    return rows


def range_of_scipy() -> list[dict[str, object]]:
    """For each p, the kappa in [1e-8, 1e8] where SciPy's pair fails and ours is finite."""
    kappa = np.logspace(-8, 8, 1601)
    rows = []
    for p in (2, 3, 16, 64, 128, 256, 512, 1024, 4096, 16384, 65536):
        low, high = scipy_pair(kappa, p)
        failed = ~(np.isfinite(low) & np.isfinite(high) & (low > 0) & (high > 0))
        phi, ratio = (t.numpy() for t in log_partition_and_ratio(torch.from_numpy(kappa), p))
        fine = np.isfinite(phi) & (phi > 0) & (ratio > 0) & (ratio <= 1)
        bad = kappa[failed & fine]
        row: dict[str, object] = {"p": p, "scipy_fails_at": int(failed.sum()), "of": len(kappa)}
        row["dsf_fails_at"] = int((~fine).sum())
        if len(bad):
            row["kappa_from"], row["kappa_to"] = float(bad.min()), float(bad.max())
            values = np.concatenate([low[failed], high[failed]])
            row["scipy_returns"] = ", ".join(
                name
                for name, hit in (
                    ("0", (values == 0).any()),
                    ("inf", np.isinf(values).any()),
                    ("nan", np.isnan(values).any()),
                )
                if hit
            )
        rows.append(row)
    return rows


def main() -> None:
    arguments = parse(__doc__)
    result: Report = {"provenance": provenance("python benchmarks/special.py", seed=SEED)}
    # A cache of its own makes the compile times those of a first run.
    with torch._inductor.utils.fresh_cache():
        result["speed"] = speed(arguments.repeats)
        show(
            f"log-partition and ratio of {VALUES} values, p = {P}, one CPU thread", result["speed"]
        )
        if torch.cuda.is_available():
            result["cuda"] = cuda_speed()
            show(f"the same on {torch.cuda.get_device_name()}", result["cuda"])
    result["range"] = range_of_scipy()
    show("where SciPy's pair returns 0, inf or nan, over kappa in [1e-8, 1e8]", result["range"])
    save(result, arguments.json)


if __name__ == "__main__":
    main()
