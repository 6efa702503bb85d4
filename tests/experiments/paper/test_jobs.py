import re
import signal
import subprocess
import sys
import time

import pytest
import tiny_plan

from dsf.experiments.paper import jobs
from dsf.experiments.paper.outcome import write_outcome
from dsf.files import read_json


@pytest.fixture
def start(tmp_path):
    """Starts `dsf reproduce` in a folder of its own."""

    def call(*arguments, **changes):
        tiny_plan.write(tmp_path, **changes)
        command = [sys.executable, "-m", "dsf", "reproduce", *arguments, "--plan", "tiny.yaml"]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=tmp_path, text=True, **streams)

    return call


@pytest.mark.slow
def test_runs_wait_for_what_they_need(start, tmp_path):
    runs = {
        "table1/dsf": {"method": "dsf"},
        "table1/same": {"method": "dsf"},
        "alone": {"method": "dsf", "tuned": False},
    }
    groups = {"table1": ["table1/dsf", "table1/same"]}
    words = ["tuning/dsf", "table1", "alone", "--jobs", "2"]
    output, errors = start(*words, runs=runs, groups=groups).communicate(timeout=300)
    events = [
        (line.split(":")[0], "begins" in line)
        for line in errors.splitlines()
        if line.endswith(": done") or ": begins" in line
    ]
    assert len(events) == 10
    candidates = ["tuning/dsf/lr-0.03", "tuning/dsf/lr-0.12"]
    assert events[:2] == [(name, True) for name in candidates]
    place = {event: number for number, event in enumerate(events)}
    for name in candidates:
        assert place[name, False] < place["table1/dsf", True]
    assert place["table1/dsf", False] < place["table1/same", True]
    assert read_json(tmp_path / "results/tiny/table1/same.json")["same_as"] == "table1/dsf"
    assert output.splitlines()[2].startswith("table1/dsf: kNN ")
    log = (tmp_path / "runs/paper/tiny/table1/dsf.log").read_text()
    assert "table1/dsf: dsf train demo " in log
    _, errors = start(*words, runs=runs, groups=groups).communicate(timeout=60)
    assert errors.count("done already") == 5
    assert "begins" not in errors


@pytest.mark.slow
def test_asked_to_stop_all_save_and_go_on(start, tmp_path):
    method = tiny_plan.METHODS["dsf"]
    # Long enough for the other to begin while one trains, on however busy a machine.
    long = [*method["overrides"], "epochs=1000", "log_every=1"]
    changes = {
        "methods": {"dsf": method | {"overrides": long}},
        "runs": {
            name: {"method": "dsf", "tuned": False, "overrides": [f"seed={name[-1]}"]}
            for name in ("long-1", "long-2")
        },
        "groups": {},
    }
    process = start("long-1", "long-2", "--jobs", "2", **changes)
    metrics = [tmp_path / f"runs/paper/tiny/long-{number}/metrics.jsonl" for number in (1, 2)]
    while process.poll() is None and not all(
        path.exists() and path.read_text() for path in metrics
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert output == "stopped by SIGTERM; the same command goes on\n"
    for path in metrics:
        assert any((path.parent / "checkpoints").iterdir())
    shown, _ = start("--list", **changes).communicate(timeout=60)
    assert len(re.findall(r"^long-\d +partial ", shown, re.M)) == 2


def test_what_fails_is_said_and_the_rest_goes_on(tmp_path):
    plan = tiny_plan.load(tmp_path)
    results, said = tmp_path / "results", []
    for name in plan.candidates("feature-avg"):
        write_outcome(results, name, tiny_plan.made_up(plan, name))
    names = ["tuning/dsf/lr-0.03", "table1/dsf", "tuning/feature-avg/lr-0.03"]

    def command(name):
        return ["reproduce", "nonsense", "--list"]

    lost = jobs.reproduce_at_once(
        plan, names, results, tmp_path / "runs", command, 2, say=said.append
    )
    assert lost == ["tuning/dsf/lr-0.03", "table1/dsf"]
    assert "tuning/feature-avg/lr-0.03: done already" in said
    assert "table1/dsf: not begun: tuning/dsf/lr-0.03 has no result" in said
    [failed] = [line for line in said if "ended with" in line]
    assert failed.startswith("tuning/dsf/lr-0.03: ended with 2: dsf: ")
    assert failed.endswith(f"({tmp_path / 'runs/tuning/dsf/lr-0.03.log'})")


def test_runs_that_cannot_be_set_up_do_not_stop_the_others(tmp_path):
    plan, said = tiny_plan.load(tmp_path), []
    results = tmp_path / "results"
    for name in plan.candidates("dsf"):
        write_outcome(results, name, tiny_plan.made_up(plan, name, failure="the loss is nan"))
    for name in plan.candidates("feature-avg"):
        write_outcome(results, name, tiny_plan.made_up(plan, name))
    other = "table1/feature-avg"
    write_outcome(results, other, tiny_plan.made_up(plan, other))
    lost = jobs.reproduce_at_once(
        plan, ["table1/dsf", other], results, tmp_path / "runs", lambda name: [], 2, say=said.append
    )
    assert lost == ["table1/dsf"]
    assert said == [
        "table1/dsf: not begun: all candidates of tuning/dsf have failed: none can be chosen",
        "table1/feature-avg: done already",
    ]


_LAST_EPOCH_BUT_ONE = """
import pathlib, sys, time
folder, wait = pathlib.Path(sys.argv[1]), float(sys.argv[2])
folder.mkdir(parents=True)
(folder / "config.yaml").write_text("recipe: demo\\nepochs: 10\\n")
line = '{"kind": "epoch", "epoch": 9, "step": 9, "seconds": 5.0}\\n'
(folder / "metrics.jsonl").write_text(line)
while not pathlib.Path(sys.argv[3]).exists() and wait > 0:
    time.sleep(0.01)
    wait -= 0.01
"""


@pytest.mark.parametrize(("ahead", "together"), [(0, 1), (4, 1), (6, 2)])
def test_the_next_begins_ahead_of_the_end(tmp_path, monkeypatch, ahead, together):
    """Each has five seconds left, until another begins or, where none may, for a while."""
    plan, runs = tiny_plan.load(tmp_path), tmp_path / "runs"
    names = [*plan.candidates("dsf"), *plan.candidates("feature-avg")]
    at_once = [0]

    def start(asked, command, log, count, running):
        at_once.append(len(running) + 1)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        if running:
            (runs / "go").touch()
        wait = 30 if together > 1 else 0.5
        arguments = map(str, (log.with_suffix(""), wait, runs / "go"))
        process = subprocess.Popen([sys.executable, "-c", _LAST_EPOCH_BUT_ONE, *arguments])
        return jobs._Job(asked, process, log, None)

    monkeypatch.setattr(jobs, "_start", start)
    results = tmp_path / "results"
    jobs.reproduce_at_once(plan, names, results, runs, lambda name: [], 1, ahead=ahead)
    assert max(at_once) == together


def test_gpus_are_shared_evenly(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    taken = []
    for _ in range(7):
        taken.append(jobs._device(taken))
    assert taken == ["4", "5", "7", "4", "5", "7", "4"]
    taken.remove("5")
    assert jobs._device([*taken, "5", "7"]) == "5"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    assert jobs._device([]) is None


def test_finetuning_waits_for_its_encoder_and_all_that_needs():
    from dsf.experiments.paper.plan import load_plan

    plan = load_plan("imagenette")
    needed = jobs._needs(plan, "table2/dsf/pets")
    assert needed == {"table1/dsf", *plan.candidates("dsf")}
    assert jobs._needs(plan, "tuning/dsf/base_lr-0.005") == set()
