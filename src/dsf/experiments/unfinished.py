"""Runs that are not at their end: killed, stopped, or still being trained."""

import math
from pathlib import Path
from shlex import quote

from dsf.experiments.page.run import Run, as_float, as_mapping
from dsf.files import read_json
from dsf.training import Checkpoints
from dsf.training.checkpoints import STATE


def unfinished(run: Run, checkpoint: str | None = None) -> str | None:
    """Where a run stands that is not at its end, such as ``step 871 of 1,328``.

    Args:
        run: of ``read_run``.
        checkpoint: the name of the one that counts, such as ``step-00000871``; by default the
            newest, or the last line of metrics if that is later.

    Returns:
        None of a finished run, and where its files do not tell.
    """
    from dsf.experiments.run import CHECKPOINTS

    if checkpoint is None:
        seen = (as_float(line.get("step")) for line in run.metrics)
        saved = (_step(path.name) for path in Checkpoints(run.folder / CHECKPOINTS).paths())
        step = int(max([*filter(math.isfinite, seen), *saved], default=0))
    else:
        step = _step(checkpoint)
    steps = _planned(run)
    return f"step {step:,} of {steps:,}" if steps is not None and step < steps else None


def unfinished_note(run: Run, checkpoint: str | None = None) -> str | None:
    """The same as a line for whoever uses the run."""
    where = unfinished(run, checkpoint)
    if where is None:
        return None
    return (
        f"note: {run.folder} is at {where}, not at its end; if it was stopped, "
        f"`dsf train -o {quote(str(run.folder))} --resume` goes on"
    )


def _state(checkpoint: Path) -> object:
    try:
        return read_json(checkpoint / STATE)
    except (OSError, ValueError):
        return None


def _step(checkpoint: str) -> int:
    return int(checkpoint.rpartition("-")[2])


def _planned(run: Run) -> int | None:
    """The steps of all epochs, by a checkpoint or a line that says at which epoch a step was."""
    from dsf.experiments.run import CHECKPOINTS

    epochs = as_float(run.config.get("epochs"))
    for path in Checkpoints(run.folder / CHECKPOINTS).paths():
        steps = as_float(as_mapping(_state(path)).get("steps_per_epoch")) * epochs
        if math.isfinite(steps):
            return round(steps)
    for line in reversed(run.metrics):
        step, epoch = as_float(line.get("step")), as_float(line.get("epoch"))
        if step > 0 and epoch > 0 and math.isfinite(step / epoch * epochs):
            return round(step / epoch * epochs)
    return None
