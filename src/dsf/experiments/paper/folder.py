"""What the folder of a run tells of its training, without loading it."""

import math
from pathlib import Path
from typing import NamedTuple

from dsf.experiments.recipe import load_recipe
from dsf.experiments.run import CHECKPOINTS, CONFIG, METRICS
from dsf.files import read_json
from dsf.training import checkpoints as saved
from dsf.training.checkpoints import STATE, Checkpoints
from dsf.training.metrics import read_metrics


class Progress(NamedTuple):
    """How far the newest checkpoint is."""

    epoch: float
    epochs: int

    @property
    def trained(self) -> bool:
        """Whether it is that of the end."""
        return self.epoch >= self.epochs


def progress(folder: Path) -> Progress | None:
    """How far a training is; None without a checkpoint."""
    paths = Checkpoints(folder / CHECKPOINTS).paths()
    if not paths:
        return None
    state = read_json(paths[-1] / STATE)
    epoch = state["epoch"] + state["batch"] / state["steps_per_epoch"]
    return Progress(epoch, load_recipe(str(folder / CONFIG)).epochs)


def is_trained(folder: Path) -> bool:
    """Whether a folder holds an encoder that was trained to the end."""
    found = progress(folder)
    return found is not None and found.trained


def seconds_left(folder: Path) -> float:
    """What is left of a training at the pace of its last epoch; infinite before it has one."""
    ends = [line for line in read_metrics(folder / METRICS) if line["kind"] == "epoch"]
    if not ends:
        return math.inf
    epochs = load_recipe(str(folder / CONFIG)).epochs
    return float((epochs - ends[-1]["epoch"]) * ends[-1]["seconds"])


def checksum(folder: Path) -> str:
    """That of the newest checkpoint."""
    return saved.checksum(Checkpoints(folder / CHECKPOINTS).paths()[-1])
