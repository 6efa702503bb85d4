"""What a kill costs: runs killed by SIGKILL at random moments and resumed until they are done.

    python benchmarks/kill.py [--kills N] [--json FILE]

A small run is trained undisturbed, then once more by processes that die one after the other, each
at a random moment: while it starts, trains, writes a line of metrics or a checkpoint. Each resumes
what the one before left. Reported is what each kill lost: the steps after the last whole
checkpoint, never more than lie between two. The end must be the same to the last bit.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dsf.benchmarks.report import Report, provenance, save, show
from dsf.training import Checkpoints, read_metrics
from dsf.training.checkpoints import read

EVERY = 5
FURTHEST = 16  # steps before a process dies; the run has 32 for each, so that none reaches its end
SETTINGS = [
    "data.limit=512",
    "batch_size=16",
    "views.count=4",
    "views.size=8",
    "encoder.name=resnet-small",
    "encoder.options={width: 4}",
    "batch_norm.splits=4",
    "dimension=8",
    "loss.queue=32",
    "log_every=1",
    "knn.every=0",
    "device=cpu",
    f"checkpoint.steps={EVERY}",
]
TIMES = ("images_per_s", "seconds")


def command(folder: Path, epochs: int) -> list[str]:
    settings = [*SETTINGS, f"epochs={epochs}", "--resume", "-o", str(folder)]
    return [sys.executable, "-m", "dsf", "train", "demo", *settings]


def last_step(folder: Path) -> int:
    """The step of the newest checkpoint; raises where one that has its name is not whole."""
    paths = Checkpoints(folder / "checkpoints").paths()
    for path in paths:
        read(path)
    return int(paths[-1].name.removeprefix("step-")) if paths else 0


def last_line(folder: Path) -> int:
    return max((line["step"] for line in read_metrics(folder / "metrics.jsonl")), default=0)


def same(one: Path, other: Path) -> bool:
    ends = []
    for folder in (one, other):
        path = Checkpoints(folder / "checkpoints").paths()[-1]
        lines = read_metrics(folder / "metrics.jsonl")
        for line in lines:
            for name in TIMES:
                line.pop(name, None)
        ends.append(((path / "tensors.safetensors").read_bytes(), lines))
    return ends[0] == ends[1]


def killed_once(folder: Path, epochs: int, steps: int, seconds: float) -> bool:
    """Whether the process was still alive so many steps, and then seconds, after it went on."""
    goal = last_line(folder) + steps
    process = subprocess.Popen(
        command(folder, epochs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    started = time.monotonic()
    while process.poll() is None and time.monotonic() - started < 120:
        if last_line(folder) >= goal:
            break
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    code = process.wait()
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a process ended with {code} instead of being killed")
    return code != 0


def measure(folder: Path, kills: int, seed: int) -> list[dict[str, object]]:
    epochs = max(2, kills)
    subprocess.run(command(folder / "whole", epochs), check=True, capture_output=True)
    random.seed(seed)
    rows: list[dict[str, object]] = []
    run = folder / "killed"
    while len(rows) < kills:
        steps = max(0, random.randint(-3, FURTHEST))  # some die while they start
        if not killed_once(run, epochs, steps, random.uniform(0, 0.2)):
            break
        reached, kept = last_line(run), last_step(run)
        rows.append({"kill": len(rows) + 1, "reached": reached, "kept": kept})
        rows[-1]["lost"] = max(0, reached - kept)
    subprocess.run(command(run, epochs), check=True, capture_output=True)
    if not same(folder / "whole", run):
        raise RuntimeError("the killed run ended in other weights or metrics")
    lost = [int(str(row["lost"])) for row in rows]
    if max(lost, default=0) > EVERY:
        raise RuntimeError(f"a kill lost {max(lost)} steps; checkpoints are {EVERY} apart")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    report: Report = {"provenance": provenance("python benchmarks/kill.py", seed=arguments.seed)}
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), arguments.kills, arguments.seed)
    report["kills"] = rows
    show(f"steps lost by each kill; a checkpoint every {EVERY} steps", rows)
    print(f"\n{len(rows)} kills; the end is the same to the bit as without them")
    save(report, arguments.json)


if __name__ == "__main__":
    main()
