"""Run the cases of a module in one process and in two, and hand back what each computed.

A module of cases has ``CASES``, their names, and ``train(case)``, a dict of tensors.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file


def run(module, folder):
    """Results by "size-rank": "1-0", "2-0" and "2-1"; their keys are "case/name"."""
    path = Path(module.__file__)
    script = Path(__file__)
    places = [str(script.parent), str(path.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    for size in (1, 2):
        command = [sys.executable, str(script), str(size), str(folder), path.stem]
        subprocess.run(command, check=True, timeout=600, env=environment)
    return {name: load_file(folder / f"{name}.safetensors") for name in ("1-0", "2-0", "2-1")}


def worker(rank, size, folder, module):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store{size}", rank=rank, world_size=size
    )
    cases, results = importlib.import_module(module), {}
    for case in cases.CASES:
        results |= {f"{case}/{name}": value for name, value in cases.train(case).items()}
    save_file(results, os.path.join(folder, f"{size}-{rank}.safetensors"))
    dist.destroy_process_group()


if __name__ == "__main__":
    size, folder, module = sys.argv[1:]
    mp.spawn(worker, args=(int(size), folder, module), nprocs=int(size))
