import json

import pytest
from pages import metrics, write_run

from dsf.experiments.page import read_run
from dsf.experiments.unfinished import unfinished, unfinished_note


@pytest.mark.parametrize(
    ("lines", "checkpoint", "where"),
    [
        (list(metrics(4)), None, None),
        (list(metrics(4)), "step-00000160", None),
        (list(metrics(4)), "step-00000150", "step 150 of 160"),  # the last one is damaged
        (list(metrics(2)), None, "step 80 of 160"),
        (list(metrics(2))[:1], None, "step 10 of 160"),  # within the first epoch
        ([{"kind": "knn", "step": 0, "epoch": 0}], None, None),  # nothing tells
        ([{"kind": "step", "step": "x", "epoch": 0.5}, {"kind": "text"}], None, None),
        ([], "step-00000003", None),
    ],
)
def test_where_a_run_stands(tmp_path, lines, checkpoint, where):
    run = read_run(write_run(tmp_path / "run", lines=lines))
    assert unfinished(run, checkpoint) == where
    note = unfinished_note(run, checkpoint)
    assert (note is None) == (where is None)
    if where:
        assert note.startswith(f"note: {tmp_path / 'run'} is at {where}, not at its end")


def test_a_checkpoint_after_the_last_line(tmp_path):
    run = read_run(write_run(tmp_path / "run", lines=list(metrics(2))))
    (tmp_path / "run" / "checkpoints" / "step-00000087").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "step-00000060").mkdir()
    assert unfinished(run) == "step 87 of 160"


def test_stopped_before_the_first_line(tmp_path):
    run = read_run(write_run(tmp_path / "run", lines=[]))
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{")
    assert unfinished(run) is None
    (checkpoint / "state.json").write_text(json.dumps({"steps_per_epoch": 40}))
    assert unfinished(run) == "step 2 of 160"


def test_long_runs_and_broken_files(tmp_path):
    lines = [{"kind": "step", "step": 12_345, "epoch": 12.345}]
    folder = write_run(tmp_path / "run", lines=lines)
    (folder / "config.yaml").write_text(json.dumps({"epochs": 250}))
    assert unfinished(read_run(folder)) == "step 12,345 of 250,000"
    (folder / "config.yaml").write_text("epochs: many")
    assert unfinished(read_run(folder)) is None
