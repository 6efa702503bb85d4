"""TensorBoard and Weights & Biases, where they are installed and asked for."""

import importlib
from pathlib import Path
from typing import Any

from dsf.training.loop import Callback
from dsf.training.metrics import Line

_NOT_VALUES = ("kind", "step", "text")


class TensorBoard(Callback):
    """Write event files.

    Args:
        folder: theirs.
        step: what a killed run wrote after it is hidden.
    """

    def __init__(self, folder: Path, step: int) -> None:
        module = _optional("torch.utils.tensorboard", "tensorboard", "tensorboard=true")
        self._writer: Any = module.SummaryWriter(str(folder), purge_step=step + 1)

    def line(self, line: Line) -> None:
        """Write every number of it."""
        for name, value in _values(line).items():
            self._writer.add_scalar(name, value, line["step"])

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class WeightsAndBiases(Callback):
    """Send metrics to a project of Weights & Biases.

    Args:
        project: its name.
        folder: of the run; the run's name there is its name here.
        settings: to show beside the metrics.
    """

    def __init__(self, project: str, folder: Path, settings: dict[str, Any]) -> None:
        module = _optional("wandb", "wandb", f"wandb={project}")
        name = folder.resolve().name
        self._run: Any = module.init(
            project=project, name=name, id=name, resume="allow", dir=str(folder), config=settings
        )

    def line(self, line: Line) -> None:
        """Send every number of it."""
        self._run.log(_values(line), step=line["step"])

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


def _values(line: Line) -> dict[str, float]:
    kind = line["kind"]
    return {
        f"{kind}/{name}": value
        for name, value in line.items()
        if name not in _NOT_VALUES and isinstance(value, int | float)
    }


def _optional(module: str, package: str, setting: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{setting} needs the package {package}, which is not installed ({error}): "
            f"pip install 'dsf-ssl[{package}]', or leave the setting out"
        ) from None
