"""What importing costs, and what it needs: each in a process of its own."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import linked
import pytest

ROOT = Path(__file__).parents[1]


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.fixture(scope="module")
def only_torch(tmp_path_factory):
    """Runs code where there are torch, what torch requires, and dsf."""
    folder = tmp_path_factory.mktemp("only-torch")
    linked.link(["torch"], folder)
    (folder / "dsf").symlink_to(ROOT / "src" / "dsf")

    def call(code):
        command = [sys.executable, "-S", "-W", "ignore", "-c", code]
        variables = os.environ | {"PYTHONPATH": str(folder)}
        return subprocess.run(command, capture_output=True, text=True, env=variables)

    return call


def test_losses_and_distributions_need_only_torch(only_torch):
    code = """
import torch

from dsf.losses import DSFLoss
from dsf.vmf import VonMisesFisher, jeffreys

views = torch.randn(4, 3, 16, requires_grad=True)
loss = DSFLoss(mode="exact", memory_bank_size=(8, 16))(views, torch.randn(4, 3, 16))
loss.backward()
assert views.grad.abs().sum() > 0
known = VonMisesFisher(torch.eye(16)[0], torch.tensor(50.0))
draws = known.sample((100,))
assert torch.distributions.kl_divergence(known, known) == 0
assert jeffreys(torch.tensor(2.0), torch.tensor(2.5), torch.tensor(0.5), 16) > 0
print(float(known.log_prob(draws).mean()))
"""
    found = only_torch(code)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) > 0


def test_there_is_nothing_else(only_torch):
    names = ["numpy", "timm", "torchvision", "safetensors", "PIL", "yaml", "pydantic", "pytest"]
    code = f"from importlib.util import find_spec\nprint([n for n in {names} if find_spec(n)])"
    assert only_torch(code).stdout == "[]\n"


@pytest.mark.parametrize("modules", ["dsf", "dsf, dsf.losses, dsf.vmf, dsf.methods, dsf.models"])
def test_importing_takes_less_than_a_second_beyond_torch(modules):
    """Best of three, since others may be at work on the machine; it takes a tenth of that."""
    code = (
        "import time, torch\nstart = time.perf_counter()\n"
        f"import {modules}\nprint(time.perf_counter() - start)"
    )
    seconds = []
    while not seconds or (min(seconds) >= 1 and len(seconds) < 3):
        seconds.append(float(run(code).stdout))
    assert min(seconds) < 1


def test_dsf_alone_imports_nothing():
    found = run("import sys, dsf; print('torch' in sys.modules, dsf.__version__)")
    assert found.stdout.startswith("False ")


def test_encoders_import_their_libraries_when_they_are_made():
    code = (
        "import sys, dsf.models, dsf.experiments.settings\n"
        "assert not {'timm', 'torchvision', 'onnx', 'transformers'} & sys.modules.keys()\n"
        "dsf.models.create_encoder('resnet-small')\n"
        "assert 'timm' in sys.modules and 'transformers' not in sys.modules"
    )
    found = run(code)
    assert found.returncode == 0, found.stderr


def test_the_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = {"tensorboard", "wandb", "lightly", "onnx", "corruptions", "docs", "dev"}
    assert promised <= project["optional-dependencies"].keys()
    [own] = [each for each in project["optional-dependencies"]["dev"] if each.startswith("dsf-ssl")]
    named = set(own.partition("[")[2].rstrip("]").split(","))
    assert named <= project["optional-dependencies"].keys()
    assert {"docs", "lightly", "onnx", "corruptions"} <= named
