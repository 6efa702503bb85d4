import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.resources import files
from itertools import chain
from pathlib import Path

import dsf
import dsf.vmf

ROOT = Path(__file__).parents[1]


def test_readme_example_prints_what_the_readme_says():
    text = (ROOT / "README.md").read_text()
    first, *others = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    expected = re.search(r"```text\n(.*?)```", text, re.DOTALL).group(1)
    run = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, check=True)
    assert run.stdout == expected
    assert len(first.strip().splitlines()) <= 10 + 1  # a blank line after the imports
    for code in others:
        subprocess.run([sys.executable, "-c", code], check=True)


def test_each_part_imports_only_from_those_before_it():
    text = (ROOT / "docs/design.md").read_text()
    order = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    folders = {path.parent.name for path in (ROOT / "src/dsf").glob("*/__init__.py")}
    assert folders - set(order) == {"commands"}  # those of the command line come last
    for part in order:
        for path in (ROOT / "src/dsf" / part).rglob("*.py"):
            for name in _imported(path):
                words = [*name.split("."), ""]
                later = [*order[order.index(part) + 1 :], "commands", "cli"]
                assert words[0] != "dsf" or words[1] not in later, f"{path} imports {name}"


def _imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "dsf":
            yield from (f"dsf.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_version_and_type_marker():
    assert metadata.version("dsf-ssl") == dsf.__version__
    assert files("dsf").joinpath("py.typed").is_file()


def test_constraints_satisfy_the_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    extras = project["optional-dependencies"]
    for requirement in chain(project["dependencies"], *extras.values()):
        if requirement.startswith("dsf-ssl"):
            continue
        name, bound = requirement.split(">=")
        version = tuple(int(part) for part in pinned[name].split(".")[:2])
        assert version >= tuple(int(part) for part in bound.split(".")[:2]), requirement


def test_public_names():
    promised = {
        "ViewDistribution",
        "VonMisesFisher",
        "bessel_ratio",
        "bessel_ratio_derivative",
        "bhattacharyya",
        "chi_squared",
        "fit_views",
        "geometric_jensen_shannon",
        "hellinger",
        "inverse_bessel_ratio",
        "jeffreys",
        "kl_divergence",
        "log_iv",
        "log_normalizer",
        "log_partition",
        "renyi",
    }
    assert promised <= set(dsf.vmf.__all__)
    for name in promised:
        assert getattr(dsf.vmf, name).__doc__
