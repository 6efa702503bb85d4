import re
import signal
import subprocess
import sys
import time

import pytest
import tiny_plan

from dsf.cli import main
from dsf.experiments.build import load_split
from dsf.files import read_json


@pytest.fixture
def there(tmp_path, monkeypatch):
    """An empty place with a plan."""
    monkeypatch.chdir(tmp_path)
    tiny_plan.write(tmp_path)
    return tmp_path


def call(*arguments):
    return main(["reproduce", *arguments, "--plan", "tiny.yaml"])


def test_list_run_and_render(there, capsys):
    assert call("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["tuning/feature-avg/lr-0.03", "not", "run", "~0.1", "min"]
    assert lines[-1] == "0 of 7 done; the rest takes about 1 GPU minutes"
    assert call("tuning/dsf", "table1/dsf") == 0
    output, errors = capsys.readouterr()
    assert output.splitlines()[-1].startswith("table1/dsf: kNN ")
    assert "table1/dsf: dsf train demo " in errors
    assert read_json(there / "results/tiny/table1/dsf.json")["environment"]["command"]
    assert call("--list", "table1") == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("table1/dsf          done ")
    assert second.endswith("needs tuning/feature-avg")
    assert last.startswith("1 of 2 done")
    assert call("--render") == 0
    # Of one plan, and so not where the document of all of them is.
    assert capsys.readouterr().out == "results/tiny/results.md\n"
    text = (there / "results/tiny/results.md").read_text()
    assert "**Partial: 1 of 2 runs are done.**" in text


def test_a_run_s_whole_address_is_taken_where_only_one_plan_is_looked_at(there, capsys):
    assert call("--list", "tiny/table1") == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("table1/dsf ")
    assert call("--list", "other/table1") == 2
    assert "got 'other/table1'" in capsys.readouterr().err


def test_settings_of_one_s_own_need_another_folder(there, capsys):
    assert call("head/dsf", "seed=3") == 2
    assert (
        "seed=3: results/tiny holds the runs of the plan and no others" in capsys.readouterr().err
    )
    assert call("head/dsf", "seed=3", "--results", "results/../results/tiny") == 2
    assert not (there / "results").exists()
    assert call("head/dsf", "--results", "trial", "seed=3") == 0
    assert read_json(there / "trial/head/dsf.json")["settings"]["seed"] == 3
    assert (there / "runs/paper/trial/head/dsf/config.yaml").is_file()
    assert call("head/dsf", "--results", "two", "seed=4", "--runs", "there") == 0
    assert (there / "there/head/dsf/config.yaml").is_file()
    capsys.readouterr()
    assert call("--render", "--results", "trial", "seed=3") == 0
    assert capsys.readouterr().out == "trial/results.md\n"  # not over the real one
    assert call("--render", "--results", "trial") == 1
    message = "dsf: trial/head/dsf.json is the result of another configuration: seed is 3 there"
    assert capsys.readouterr().err.startswith(message)
    assert call("--render", "seed=3") == 2
    assert "seed=3: results/tiny holds the runs of the plan" in capsys.readouterr().err
    assert call("--render", "head") == 2
    assert "--render writes the whole document: leave head out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "dsf: give a GROUP or a RUN; `dsf reproduce --list` shows them"),
        (
            ["tabel1"],
            "dsf: a run or group must be one of all, tuning, table1, head, or of those",
        ),
        (["table1/dsf"], "dsf: table1/dsf takes its settings from the tuning of dsf, of which"),
        (["head/dsf", "heads=1", "--results", "x"], "dsf: heads: no such setting; did you mean"),
    ],
)
def test_wrong_calls(there, capsys, arguments, message):
    assert call(*arguments) == 2
    assert capsys.readouterr().err.startswith(message)
    assert [path.name for path in there.iterdir()] == ["tiny.yaml"]


def test_all_plans_at_once(there, capsys):
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    totals = [line for line in lines if "done; the rest takes about" in line]
    assert [line.partition(":")[0] for line in totals] == ["cifar10", "imagenet100", "imagenette"]
    assert totals[2].startswith("imagenette: 0 of 34 done; the rest takes about 114 ")
    assert len(lines) == 87 + 28 + 34 + 3
    names = [line.split()[0] for line in lines]
    assert "table1/dsf" in names
    assert "imagenette/table2/dsf/pets" in names
    assert main(["reproduce", "--list", "imagenette/table2/dsf", "table1-imagenet100"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert re.match(r"imagenette/table2/dsf/pets +not run +~1.2 min +needs imagenette/tun", first)
    assert main(["reproduce", "--render"]) == 0
    assert capsys.readouterr().out == "docs/results.md\n"
    text = (there / "docs/results.md").read_text()
    for title in ("CIFAR-10", "ImageNet-100", "Imagenette"):
        assert f"\n## {title}, " in text


TWO_PLANS = ["reproduce", "head/dsf", "imagenette/tuning/dsf"]


def test_a_lost_run_does_not_keep_other_plans_waiting(there, monkeypatch):
    begun = []

    def at_once(plan, names, *rest):
        begun.append(plan.name)
        return names if plan.name == "cifar10" else []

    monkeypatch.setattr("dsf.experiments.paper.reproduce.load_split", lambda *arguments: None)
    monkeypatch.setattr("dsf.experiments.paper.jobs.reproduce_at_once", at_once)
    assert main([*TWO_PLANS, "--jobs", "2"]) == 1
    assert begun == ["cifar10", "imagenette"]


def test_data_that_are_missing_are_missed_before_any_run(there, monkeypatch, capsys):
    monkeypatch.setenv("DSF_DATA", str(there / "data"))
    assert main(TWO_PLANS) == 2
    assert "dsf data prepare cifar10" in capsys.readouterr().err

    def only_cifar10(settings, name):
        return None if settings.data.name == "cifar10" else load_split(settings, name)

    monkeypatch.setattr("dsf.experiments.paper.reproduce.load_split", only_cifar10)
    for jobs in ("1", "2"):
        assert main([*TWO_PLANS, "--jobs", jobs]) == 2
        errors = capsys.readouterr().err
        assert "dsf data prepare imagenette" in errors
        assert "head/dsf" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--render", "--results", "x"], "--results: is the folder of one plan; say which by"),
        (["--list", "--results", "x"], "--results: is the folder of one plan; say which by"),
        (["table1", "imagenette/large", "--runs", "x"], "--runs: is the folder of one plan"),
        (["imagenette/tuning", "seed=3"], "seed=3: results/imagenette holds the runs of the plan"),
        (["imagenette/larg"], "a run or group must be one of all, tuning, table1, large, table2"),
        (["imagenette/table2/dsf/pets", "--weights"], "table2/dsf/pets: has no encoder of its own"),
    ],
)
def test_wrong_calls_of_several_plans(there, capsys, arguments, message):
    assert main(["reproduce", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"dsf: {message}")


def test_a_plan_that_was_not_tuned(there, capsys):
    assert main(["reproduce", "imagenette/table1/dsf"]) == 2
    expected = "`dsf reproduce imagenette/tuning/dsf` runs the others"
    assert expected in capsys.readouterr().err


def test_a_wrong_plan(there, capsys):
    assert main(["reproduce", "--list", "--plan", "none"]) == 2
    assert capsys.readouterr().err.startswith("dsf: plan must be one of cifar10, imagenet100")
    assert main(["reproduce", "--list", "--plan", "none.yaml"]) == 2
    assert capsys.readouterr().err == "dsf: none.yaml: No such file or directory\n"


def test_asked_to_stop_it_saves_and_goes_on(there, capsys):
    method = tiny_plan.METHODS["dsf"]
    methods = {"dsf": method | {"overrides": [*method["overrides"], "epochs=25", "log_every=1"]}}
    run = {"long": {"method": "dsf", "tuned": False}}
    tiny_plan.write(there, methods=methods, runs=run, groups={})
    command = [sys.executable, "-m", "dsf", "reproduce", "long", "--plan", "tiny.yaml"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    metrics = there / "runs/paper/tiny/long/metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert output.endswith("; the same command goes on\n")
    assert not (there / "results").exists()
    assert call("--list", "long") == 0
    assert re.search(r"^long +partial +~.* epoch [\d.]+ of 25$", capsys.readouterr().out, re.M)
    assert call("long") == 0
    content = read_json(there / "results/tiny/long.json")
    assert content["environment"]["resumed"][0]["step"] < 150
    assert content["curve"]["epoch"] == list(range(1, 26))
