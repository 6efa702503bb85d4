"""Where a run took place: versions, hardware, commit."""

import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import dsf
from dsf import distributed

_PACKAGES = ("torch", "torchvision", "timm", "numpy", "safetensors", "pydantic")


def environment(device: torch.device) -> dict[str, Any]:
    """What a result must say about where it comes from."""
    on_gpu = device.type == "cuda"
    return {
        "command": shlex.join(["dsf", *sys.argv[1:]]),
        "dsf": dsf.__version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "cuda": torch.version.cuda if on_gpu else None,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,
        "processes": distributed.world_size(),
    }


def source_commit() -> str | None:
    """The commit of the source, and whether it was changed; None for an installed package.

    Where the source was copied without its repository, DSF_COMMIT may say it.
    """
    if said := os.environ.get("DSF_COMMIT"):
        return said
    folder = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            run = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return run.stdout.strip() if run.returncode == 0 else None

    if not git("ls-files", "environment.py"):  # some other repository around an installation
        return None
    commit = git("rev-parse", "HEAD")
    return f"{commit} with changes" if commit and git("status", "--porcelain") else commit
