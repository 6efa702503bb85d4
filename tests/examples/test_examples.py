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


def losses(script, *arguments):
    command = [sys.executable, str(EXAMPLES / script), "--steps", "3", "--batch", "16", *arguments]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return [float(value) for value in re.findall(r"step \d+ loss (\S+)", run.stdout)]


@pytest.mark.parametrize(
    ("script", "more"),
    [("lightly_moco.py", []), ("lightning_moco.py", ["--encoder", "resnet-small"])],
)
def test_trains(script, more):
    values = losses(script, *more)
    assert len(values) == 3
    assert all(math.isfinite(value) for value in values)
    assert len(set(values)) == 3


@pytest.mark.parametrize(
    ("script", "more"),
    [("lightly_moco.py", []), ("lightning_moco.py", ["--encoder", "resnet-small"])],
)
def test_takes_a_folder_of_images(tmp_path, script, more):
    for index in range(16):
        folder = tmp_path / f"class{index % 2}"
        folder.mkdir(exist_ok=True)
        Image.effect_noise((40, 40), 50).convert("RGB").save(folder / f"{index}.png")
    assert len(losses(script, "--data", str(tmp_path), *more)) == 3
