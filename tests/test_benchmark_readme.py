import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def readme():
    path = ROOT / "benchmarks" / "readme.py"
    spec = importlib.util.spec_from_file_location("benchmark_readme", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(**tables):
    about = {"command": "python x.py", "commit": "0123456789", "torch": "2.15", "wall_s": 61.2}
    return {"provenance": about, **tables}


def test_it_is_what_the_results_make(readme):
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    fresh = readme.render(readme.benchmarks(), readme.results())
    assert text == fresh, "stale: run `make results`"


def test_every_benchmark_says_how_to_repeat_it(readme):
    found = {benchmark.name: benchmark for benchmark in readme.benchmarks()}
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - set(readme.HELPERS)
    assert found.keys() == scripts | {"step"}
    for name, benchmark in found.items():
        call = "dsf bench step" if name == "step" else f"python benchmarks/{name}.py"
        assert benchmark.command.startswith(call)
        assert benchmark.sentence.endswith(".")


def test_make_bench_runs_every_benchmark(readme):
    recipe = (ROOT / "Makefile").read_text().split("\nbench:")[1].split("\n\n")[0]
    run = set(re.findall(r"benchmarks/(\w+)\.py", recipe)) | set(
        re.findall(r"dsf bench (\w+)", recipe)
    )
    assert run == {benchmark.name for benchmark in readme.benchmarks()}


def test_rows_become_a_table(readme):
    rows = [{"what": "a|b", "ms": 1234.5, "none": None}, {"what": "c", "ms": 0.01234, "times": 2}]
    text = readme.render([readme.Benchmark("x", "Some.\n\n    x")], {"x-cpu": report(rows=rows)})
    assert "| what | ms | times |" in text
    assert "| a\\|b | 1,234 |  |" in text
    assert "| c | 0.0123 | 2 |" in text
    assert "at commit 0123456, torch 2.15, 61 s in all" in text
    assert "### On a CPU" in text


def test_long_tables_are_folded(readme):
    found = [readme.Benchmark("x", "Some.\n\n    x")]
    for count, folded in ((readme.LONG, False), (readme.LONG + 1, True)):
        text = readme.render(found, {"x": report(kills=[{"n": n} for n in range(count)])})
        assert ("<details>" in text) is folded


def test_what_was_not_measured_is_told(readme):
    text = readme.render([readme.Benchmark("x", "Some.\n\n    x")], {})
    assert "| Some. | not measured yet |" in text
    assert "Not measured yet." in text


def test_results_of_nothing_are_refused(readme):
    with pytest.raises(ValueError, match=r"xy\.json must be named after a benchmark"):
        readme.render([readme.Benchmark("x", "Some.\n\n    x")], {"xy": report()})
