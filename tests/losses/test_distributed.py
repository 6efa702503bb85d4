import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from two_processes import CASES

SCRIPT = Path(__file__).parent / "two_processes.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    for size in (1, 2):
        command = [sys.executable, str(SCRIPT), str(size), str(folder)]
        subprocess.run(command, check=True, timeout=300)
    return {name: load_file(folder / f"{name}.safetensors") for name in ("1-0", "2-0", "2-1")}


@pytest.mark.parametrize("case", CASES)
def test_two_processes_equal_one(runs, case):
    names = [name for name in runs["1-0"] if name.startswith(f"{case}/")]
    assert any("queue" in name.partition("/")[2] for name in names) == case.endswith("queue")
    for name in names:
        for rank in ("2-0", "2-1"):
            torch.testing.assert_close(runs[rank][name], runs["1-0"][name], rtol=1e-9, atol=1e-11)
