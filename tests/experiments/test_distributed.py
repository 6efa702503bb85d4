"""The same command under torchrun, on two processes and on four."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
import torch

from dsf.experiments import train

pytestmark = pytest.mark.slow
# Groups of BatchNorm that are not tiny, which magnify rounding. Splits are a multiple of processes
# x views that an encoder sees at once, or else two processes have other groups than one.
PRECISE = ["precision=fp64", "batch_size=32", "views.size=16", "checkpoint.steps=4"]
CASES = {
    "moco": ["loss.queue=40"],  # more than a batch, less than two: the order within one matters
    "moco-accumulated": ["accumulate=2"],
    "mocov3": [*tiny.MOCOV3, "momentum.schedule=cosine"],
    "local": ["views.local={count: 2, size: 8}"],
    "simclr": ["method=simclr", "loss.queue=0", "batch_norm.splits=8"],
}


# MoCo v3 with DSF and its transformer, narrow and shallow; 3 steps an epoch.
FOUR = [
    *tiny.MOCOV3,
    "momentum.schedule=cosine",
    "batch_norm.splits=8",
    "encoder.name=mocov3-vit-small",
    "encoder.options={embed_dim: 24, depth: 1, num_heads: 3}",
    "views.size=32",
    "views.recipe=mocov3-1",
    "views.second=mocov3-2",
    "optimiser={name: adamw, base_lr: 0.01, weight_decay: 0.1, decay_all: true}",
    "epochs=10",
    "schedule.warmup_epochs=2",
    "checkpoint.steps=2",
    "log_every=2",
]


def start(folder, *arguments, processes=2, program=("-m", "dsf")):
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    command += [*program, "train", "demo", *tiny.SETTINGS, *PRECISE, *arguments]
    command += ["-o", str(folder)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def close(one, other):
    """Parameters, optimiser and statistics agree, and so do the lines of metrics."""
    a, b = tiny.tensors(one), tiny.tensors(other)
    assert a.keys() == b.keys()
    for name in a:
        if name == "random":
            continue  # a state a process
        torch.testing.assert_close(
            a[name], b[name], rtol=1e-7, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )
    for one_line, other_line in zip(tiny.lines(one), tiny.lines(other), strict=True):
        assert one_line["step"] == other_line["step"]
        assert one_line["loss"] == pytest.approx(other_line["loss"], rel=1e-7)
        assert one_line["margin"] == pytest.approx(other_line["margin"], rel=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_equal_one(tmp_path, case):
    process = start(tmp_path / "two", *CASES[case])
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert output == f"{tmp_path}/two\n"  # one process speaks
    one = train(tiny.settings(*PRECISE, *CASES[case]), tmp_path / "one", show=False)
    close(one, tmp_path / "two")
    for mine, theirs in zip(tiny.lines(one), tiny.lines(tmp_path / "two"), strict=True):
        for name in ("kappa_min", "kappa_max", "resultant_min", "resultant_max"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-6)


@pytest.mark.parametrize(
    ("processes", "arguments"),
    [(2, ["epochs=40", "log_every=2"]), (4, FOUR)],
    ids=["moco-two", "mocov3-dsf-four"],
)
def test_a_killed_rank_ends_the_job_and_a_restart_resumes(tmp_path, processes, arguments):
    folder = tmp_path / "run"
    process = start(folder, *arguments, processes=processes)
    while len(list(folder.glob("checkpoints/step-????????"))) < 2 and process.poll() is None:
        time.sleep(0.05)
    last = str(processes - 1)
    (victim,) = [child for child in children(process.pid) if environment(child)["RANK"] == last]
    os.kill(victim, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "dsf: lost another process of this run: " in errors or "SIGKILL" in errors
    assert not (folder / "results.json").exists()
    again = start(folder, *arguments, "--resume", processes=processes)
    _, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    assert "resumed from" in errors
    settings = tiny.settings(*PRECISE, *arguments)
    close(train(settings, tmp_path / "one", show=False), folder)


def children(pid):
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed if "RANK" in environment(int(child))]


def environment(pid):
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.partition("=")[::2] for entry in entries)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["batch_norm.splits=1"], "batch_norm.splits: must be a multiple of the 2 processes"),
        (["batch_norm={splits: 1, sync: true}"], "batch_norm.sync: torch's SyncBatchNorm needs"),
    ],
)
def test_contradictions_stop_early(tmp_path, arguments, message):
    process = start(tmp_path / "runs" / "run", *arguments)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert f"dsf: {message}" in errors
    assert list(tmp_path.iterdir()) == []


def program(folder, differs):
    """The command as a script whose processes first do something by their rank."""
    path = folder / "program.py"
    path.write_text(f"import os, sys\nrank = os.environ['RANK']\n{differs}\n")
    with path.open("a") as file:
        file.write("from dsf.cli import main\nsys.exit(main())\n")
    return [str(path)]


def test_processes_that_read_different_checkpoints_stop(tmp_path):
    """Two machines, each with a disk of its own, of which one has the run."""
    for rank in "01":
        (tmp_path / rank).mkdir()
    train(tiny.settings(*PRECISE), tmp_path / "0" / "run", show=False)
    apart = program(tmp_path, f"os.chdir(os.path.join({str(tmp_path)!r}, rank))")
    process = start("run", "--resume", program=apart)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    said = "dsf: run/checkpoints: the processes read different checkpoints (step 6, none): "
    assert said in errors


def test_a_restart_of_one_machine_resumes_on_all(tmp_path):
    train(tiny.settings(*PRECISE), tmp_path / "run", show=False)
    again = "os.environ['TORCHELASTIC_RESTART_COUNT'] = rank"  # as counted by two torchruns
    process = start(tmp_path / "run", program=program(tmp_path, again))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "resumed from" in errors


SLOW = """
import signal, time
from dsf.training import Loop
step = Loop._train_step
def slow(self, *arguments, **options):
    time.sleep(1)
    if rank == "1" and self.step == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    step(self, *arguments, **options)
Loop._train_step = slow
"""


def test_a_signal_to_one_saves_long_before_the_next_line(tmp_path):
    arguments = ["data.limit=1600", "log_every=50"]
    process = start(tmp_path / "run", *arguments, program=program(tmp_path, SLOW))
    output, _ = process.communicate(timeout=120)
    assert "the state is saved in " in output
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert 3 <= int(saved.name.removeprefix("step-")) <= 8
