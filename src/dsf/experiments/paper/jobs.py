"""Several runs of a plan at a time, each in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from dsf.experiments.paper.configuration import Configuration, configure, difference
from dsf.experiments.paper.folder import seconds_left
from dsf.experiments.paper.outcome import read_outcome
from dsf.experiments.paper.plan import Plan
from dsf.training.signals import Interrupted, Signals

_PAUSE = 0.2  # seconds between two looks at the processes


class _Job(NamedTuple):
    asked: Configuration
    process: "subprocess.Popen[bytes]"
    log: Path
    device: str | None


def reproduce_at_once(
    plan: Plan,
    names: Sequence[str],
    results: Path,
    runs: Path,
    command: Callable[[str], Sequence[str]],
    count: int,
    overrides: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
    ahead: float = 0.0,
) -> list[str]:
    """Make those results that are missing.

    A run begins once those that it needs are done: the candidates of its tuning, the encoder that
    it fine-tunes. What a process says goes to NAME.log beside the run's folder. With several GPUs
    each process is given the one that fewest are at; those that share one take longer, so that
    their seconds say little. With ``ahead`` the next begins, and compiles, while one trains its
    last seconds and is evaluated. Asked to stop, all save and end.

    Args:
        plan: of the runs.
        names: of the runs, in order.
        results: where results are kept.
        runs: where the run folders lie.
        command: by which a run is reproduced, by its name.
        count: how many processes at a time.
        overrides: settings to change in all of them, which the command changes too.
        say: told what happens next.
        ahead: how many seconds before the end of a training the next begins.

    Returns:
        The runs that did not come to a result.
    """
    waiting, running, lost = list(names), dict[str, _Job](), list[str]()

    def give_up(name: str, why: object) -> None:
        waiting.remove(name)
        lost.append(name)
        say(f"{name}: not begun: {why}")

    def following() -> Configuration | None:
        for name in list(waiting):
            needed = _needs(plan, name)
            if needed & set(lost):
                give_up(name, f"{min(needed & set(lost))} has no result")
            elif not needed & {*waiting, *running}:
                try:
                    asked = configure(plan, name, results, overrides)
                except ValueError as error:
                    give_up(name, error)
                    continue
                # Of two that are the same run the later one copies the result of the other.
                if not any(_same(asked, job.asked) for job in running.values()):
                    return asked
        return None

    def is_room() -> bool:
        if len(running) < count or not ahead:
            return len(running) < count
        busy = sum(seconds_left(runs / name) > ahead for name in running)
        return busy < count and len(running) < 2 * count

    with Signals() as signals:
        try:
            while waiting or running:
                if signals.received:
                    raise Interrupted(f"stopped by {signals.received}")
                lost += _ended(running, results, say)
                asked = following() if is_room() else None
                if asked is None:
                    time.sleep(_PAUSE)
                    continue
                waiting.remove(asked.name)
                if _is_done(plan, asked, results):
                    say(f"{asked.name}: done already")
                    continue
                log = runs / f"{asked.name}.log"
                say(f"{asked.name}: begins, and writes to {log}")
                running[asked.name] = _start(asked, command, log, count, running.values())
        finally:
            for job in running.values():
                job.process.terminate()
            for job in running.values():
                job.process.wait()
    return lost


def _needs(plan: Plan, name: str) -> set[str]:
    run = plan.every[name]
    if run.finetuning is not None:
        return {run.finetuning.of} | _needs(plan, run.finetuning.of)
    tuned = run.tuned and plan.methods[run.method].grid
    return set(plan.candidates(run.method)) if tuned else set()


def _same(first: Configuration, second: Configuration) -> bool:
    return (first.settings, first.finetuning) == (second.settings, second.finetuning)


def _is_done(plan: Plan, asked: Configuration, results: Path) -> bool:
    outcome = read_outcome(results, asked.name)
    if outcome is None or outcome.lacks(plan.wanted(asked.name)):
        return False
    return difference(outcome, asked) is None


def _start(
    asked: Configuration,
    command: Callable[[str], Sequence[str]],
    log: Path,
    count: int,
    running: Collection[_Job],
) -> _Job:
    variables = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // count))} | os.environ
    device = _device([job.device for job in running])
    if device is not None:
        variables["CUDA_VISIBLE_DEVICES"] = device
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "dsf", *command(asked.name)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=variables,
            start_new_session=True,  # Ctrl-C is for us; they are told to save
        )
    return _Job(asked, process, log, device)


def _device(taken: Sequence[str | None]) -> str | None:
    """The GPU of several that fewest processes are at."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else list(map(str, range(torch.cuda.device_count())))
    return min(devices, key=taken.count) if len(devices) > 1 else None


def _ended(running: dict[str, _Job], results: Path, say: Callable[[str], None]) -> list[str]:
    """Take out those that have ended, and give those of them that have no result."""
    lost = []
    for name, job in list(running.items()):
        code = job.process.poll()
        if code is None:
            continue
        del running[name]
        if code == 0 and read_outcome(results, name) is not None:
            say(f"{name}: done")
            continue
        lost.append(name)
        lines = job.log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        say(f"{name}: ended with {code}: {last.strip()} ({job.log})")
    return lost
