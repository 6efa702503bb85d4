import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.slow


SCRIPTS = [
    ("plain_loop.py", []),
    ("lightly_moco.py", []),
    ("lightning_moco.py", ["--encoder", "resnet-small"]),
]


def losses(root, script, *arguments):
    command = [sys.executable, str(EXAMPLES / script), "--steps", "3", "--batch", "16", *arguments]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "DSF_DATA": str(root)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return [float(value) for value in re.findall(r"step \d+ loss (\S+)", run.stdout)]


def test_all_are_tested():
    assert {script for script, _ in SCRIPTS} == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize(("script", "more"), SCRIPTS)
def test_trains(tmp_path, script, more):
    values = losses(tmp_path, script, *more)
    assert len(values) == 3
    assert all(math.isfinite(value) for value in values)
    assert len(set(values)) == 3


@pytest.mark.parametrize(("script", "more"), SCRIPTS)
def test_takes_a_folder_of_images(tmp_path, script, more):
    for index in range(16):
        folder = tmp_path / "images" / f"class{index % 2}"
        folder.mkdir(exist_ok=True, parents=True)
        Image.effect_noise((40, 40), 50).convert("RGB").save(folder / f"{index}.png")
    data = ["--data", str(tmp_path / "images")]
    assert len(losses(tmp_path / "root", script, *data, *more)) == 3
