import json
import math

import pytest
from pages import ENVIRONMENT, RESULTS, metrics, write_run

from dsf.experiments.page import read_run


def test_a_whole_folder(tmp_path):
    run = read_run(write_run(tmp_path))
    assert run.problems == ()
    assert run.config["views"] == {"count": 8, "recipe": "cifar"}
    assert list(run.metrics) == list(metrics())
    assert run.results == RESULTS
    assert run.environment == ENVIRONMENT
    assert run.series("knn", "backbone", 100) == [
        (line["epoch"], 100 * line["backbone"]) for line in metrics() if line["kind"] == "knn"
    ]


@pytest.mark.parametrize(
    "name", ["config.yaml", "metrics.jsonl", "results.json", "environment.json"]
)
def test_a_missing_file_is_said(tmp_path, name):
    assert read_run(write_run(tmp_path, leave_out=[name])).problems == (f"{name} is missing.",)


@pytest.mark.parametrize("content", ["[1, 2]", "{", "- a: [", "\x00", ""])
def test_an_unreadable_file_is_said(tmp_path, content):
    write_run(tmp_path)
    for name in ("config.yaml", "results.json", "environment.json"):
        (tmp_path / name).write_text(content)
    run = read_run(tmp_path)
    assert len(run.problems) == 3
    assert all(problem.endswith(" cannot be read.") for problem in run.problems)
    assert run.config == run.results == run.environment == {}


def test_a_line_that_was_cut_off(tmp_path):
    write_run(tmp_path)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    run = read_run(tmp_path)
    assert list(run.metrics) == list(metrics())[:-1]
    count = len(list(metrics()))
    assert run.problems == (f"metrics.jsonl has lines that cannot be read: {count}.",)


def test_many_broken_lines_are_one_problem(tmp_path):
    write_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("{}\n" + "[]\n" * 9)
    (problem,) = read_run(tmp_path).problems
    assert problem == "metrics.jsonl has lines that cannot be read: 2, 3, 4, 5, 6, \u2026."


def test_yaml_runs_no_code(tmp_path):
    write_run(tmp_path)
    (tmp_path / "config.yaml").write_text("a: !!python/object/apply:os.getcwd []\n")
    assert read_run(tmp_path).problems == ("config.yaml cannot be read.",)


def test_values_that_are_no_numbers(tmp_path):
    values = [1.5, None, "high", True, math.nan, math.inf]
    lines = [{"kind": "epoch", "epoch": n, "loss": value} for n, value in enumerate(values)]
    lines.append({"kind": "epoch", "epoch": 9})
    found = read_run(write_run(tmp_path, lines=lines)).series("epoch", "loss")
    assert [x for x, _ in found] == [0, 1, 2, 3, 4, 5]
    assert [json.dumps(y) for _, y in found] == ["1.5", "NaN", "NaN", "NaN", "NaN", "Infinity"]


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no run folder"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("views", "count"),
    [
        ("{count: 8}", 8),
        ("{count: 4, local: {count: 6}}", 10),
        ("{count: 4, local: {count: x}}", 4),
        ("{count: 4, local: 3}", 4),
        ("8", math.nan),
    ],
)
def test_views_of_an_image(tmp_path, views, count):
    write_run(tmp_path)
    (tmp_path / "config.yaml").write_text(f"views: {views}\n")
    assert read_run(tmp_path).views == pytest.approx(count, nan_ok=True)
