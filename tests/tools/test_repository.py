"""What GitHub and pre-commit are told: it parses, and names only what exists."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOW = GITHUB / "workflows" / "ci.yml"
FILES = [*sorted(GITHUB.rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]
TEMPLATES = [path for path in sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) if path.stem != "config"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def targets():
    return set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))


def jobs():
    return read(WORKFLOW)["jobs"]


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_target_exists(path):
    named = set(re.findall(r"\bmake ([a-z-]+)", path.read_text(encoding="utf-8")))
    assert named <= targets()


def test_the_workflow_only_calls_make():
    called = [command for job in jobs().values() for command in commands(job)]
    assert all(re.fullmatch(r"make [a-z-]+", command) for command in called)
    assert {"make lint", "make test", "make test-slow", "make docs", "make wheel"} <= set(called)


def test_all_targets_that_test_are_documented():
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"\.PHONY: (.*)", text)[1].split())
    assert phony == targets()
    for target in targets():
        assert re.search(rf"(?m)^{target}:.*## \w", text), f"{target} says not what it does"


def test_three_versions_of_python():
    lowest = PROJECT["project"]["requires-python"].removeprefix(">=")
    versions = jobs()["test"]["strategy"]["matrix"]["python"]
    assert versions == [lowest, "3.12", "3.13"]
    others = [
        step["with"]["python-version"]
        for name, job in jobs().items()
        for step in job["steps"]
        if name != "test" and "python-version" in step.get("with", {})
    ]
    assert set(others) == {lowest}


def test_actions_are_github_s_own():
    used = [step["uses"] for job in jobs().values() for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in used)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_issue_templates(path):
    form = read(path)
    assert {"name", "description", "body"} <= form.keys()
    ids = [part["id"] for part in form["body"]]
    assert len(ids) == len(set(ids))
    for part in form["body"]:
        assert part["type"] in {"checkboxes", "dropdown", "input", "textarea"}
        assert part["attributes"]["label"]
    assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_there_are_templates():
    assert len(TEMPLATES) == 3


def test_hooks_are_the_project_s_own_tools():
    repositories = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [entry["repo"] for entry in repositories] == ["local"]
    development = PROJECT["project"]["optional-dependencies"]["dev"]
    installed = {re.match(r"[\w-]+", name)[0] for name in development}
    for hook in repositories[0]["hooks"]:
        tool = hook["entry"].split()[0]
        assert tool.startswith(".venv/bin/")
        assert Path(tool).name in installed
        assert hook["language"] == "system"


def test_the_code_of_conduct_is_there():
    assert (ROOT / "CODE_OF_CONDUCT.md").read_text().startswith("# Code of conduct\n")
