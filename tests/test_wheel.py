"""What users install: the wheel, in an environment with its dependencies and nothing else."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import linked
import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def source_files():
    """All that is part of the package, by its path in it."""
    files = [path for path in (ROOT / "src").rglob("*") if path.is_file()]
    parts = [path.relative_to(ROOT / "src") for path in files]
    return {part.as_posix() for part in parts if "__pycache__" not in part.parts}


def test_the_wheel_is_complete(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == source_files()
    kinds = {name.rpartition(".")[2] for name in names}
    assert {"py", "yaml", "css", "webp", "json", "typed"} <= kinds


def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built[1]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    [root] = tmp_path.iterdir()
    for name in ("README.md", "LICENSE", "constraints.txt", "Makefile", "tests/test_wheel.py"):
        assert (root / name).is_file()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "again"]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    [again] = (root / "again").glob("*.whl")
    with zipfile.ZipFile(built[0]) as one, zipfile.ZipFile(again) as other:
        assert one.namelist() == other.namelist()
        for name in one.namelist():
            assert one.read(name) == other.read(name)


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory):
    """A fresh environment with the wheel; what it requires is linked to what is here.

    Only what the wheel's metadata asks for is there: a dependency that was forgotten is missed.
    """
    folder = tmp_path_factory.mktemp("environment") / "venv"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    install = ["pip", "install", "--no-deps", "--offline", "--python", python, built[0]]
    subprocess.run([*uv, *install], check=True)
    lines = zipfile.ZipFile(built[0]).read(_metadata_name(built[0])).decode().splitlines()
    wanted = [
        linked.distribution_name(line.removeprefix("Requires-Dist: "))
        for line in lines
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    [site] = (folder / "lib").glob("python*/site-packages")
    linked.link(wanted, site)
    return folder / "bin"


def _metadata_name(wheel):
    return next(
        name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")
    )


def call(*command, folder):
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=variables, capture_output=True, text=True
    )


def test_it_is_the_wheel_and_nothing_else(environment, tmp_path):
    code = "import dsf, sys; print(dsf.__file__); import pytest"
    found = call(environment / "python", "-c", code, folder=tmp_path)
    assert Path(found.stdout.strip()).is_relative_to(environment.parent)
    assert "No module named 'pytest'" in found.stderr


def test_the_command_line(environment, tmp_path):
    for words in (["--help"], ["train", "--list"], ["reproduce", "--list"], ["data", "list"]):
        found = call(environment / "dsf", *words, folder=tmp_path)
        assert found.returncode == 0, found.stderr


def test_the_readme_examples(environment, tmp_path):
    text = (ROOT / "README.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        found = call(environment / "python", "-c", code, folder=tmp_path)
        assert found.returncode == 0, found.stderr


def test_from_the_demo_to_timm(environment, tmp_path):
    """What a newcomer does: the demo, an evaluation, an export, another library."""
    found = call(environment / "dsf", "demo", "--quick", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    run = tmp_path / "runs" / "demo-quick"
    assert found.stdout.splitlines()[-1] == "runs/demo-quick/report.html"
    assert (run / "report.html").stat().st_size > 100_000
    found = call(environment / "dsf", "eval", run, "knn", folder=tmp_path)
    assert "kept, as it is there already" in found.stderr
    found = call(environment / "dsf", "export", run, "--to", "timm", "-o", "out", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    card = (tmp_path / "out" / "README.md").read_text()
    loading, reading = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    code = f"{loading}\n{reading}"
    found = call(environment / "python", "-c", code, folder=tmp_path / "out")
    assert found.returncode == 0, found.stderr
    found = call(environment / "dsf", "export", run, "--to", "onnx", folder=tmp_path)
    assert "pip install 'dsf-ssl[onnx]'" in found.stderr
