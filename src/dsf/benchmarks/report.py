"""What the benchmarks share: tables, provenance, timing on a CUDA device."""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from dsf.allocator import keep_freed_memory
from dsf.files import write_json
from dsf.training.environment import source_commit

Report = dict[str, Any]
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse(documentation: str) -> argparse.Namespace:
    """The options of a script, ``json`` and ``repeats``."""
    parser = argparse.ArgumentParser(description=documentation.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables there too")
    parser.add_argument("--repeats", type=int, default=15)
    keep_freed_memory()  # as the command line does
    return parser.parse_args()


def provenance(command: str, **more: object) -> Report:
    """Where a report comes from; ``save`` turns its start into the seconds that it took."""
    versions = {}
    for name in ("torch", "numpy", "scipy", "triton"):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            versions[name] = None
    return {
        "command": command,
        "commit": source_commit() or "unknown",
        "python": platform.python_version(),
        **versions,
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "started": time.time(),
        **more,
    }


def save(report: Report, path: Path | None) -> None:
    """Write what there is so far, where asked: a benchmark that is cut short loses no table."""
    if path is not None:
        origin = dict(report["provenance"])
        origin["wall_s"] = time.time() - origin.pop("started")
        write_json(path, report | {"provenance": origin})


def can_compile(device: str) -> bool:
    """Whether ``torch.compile`` works here, which takes a C++ compiler; says so if not."""
    try:
        torch.compile(torch.neg)(torch.ones(1, device=device))
    except Exception as error:  # the compiler's own, which differ from one torch to the next
        reason = str(error).strip().partition("\n")[0]
        print(f"nothing can be compiled here, so that is left out: {reason}")
        return False
    return True


def milliseconds(function: Callable[[], object], device: str, repeats: int) -> float:
    """The median time of a call, after a warm-up."""
    if device == "cuda":
        return cuda_milliseconds(function, 10 * repeats)
    for _ in range(3):
        function()
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def cuda_milliseconds(function: Callable[[], object], repeats: int = 50) -> float:
    """The median time of a call on the device, after a warm-up."""
    for _ in range(10):
        function()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    for _ in range(repeats):
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def peak_mib(function: Callable[[], object]) -> float:
    """What a call allocates on the CUDA device at most."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def graph_milliseconds(function: Callable[[], object], repeats: int = 50) -> float:
    """The median time of a call recorded as a CUDA graph: what is left without launch overhead."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return cuda_milliseconds(graph.replay, repeats)


def show(title: str, rows: Sequence[Report]) -> None:
    """Print a table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(names, *cells, strict=True)]
    print(f"\n{title}")
    for line in (names, *cells):
        print("  " + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
