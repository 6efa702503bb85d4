"""The monitor: how good the features are while they are trained."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from dsf.evaluation import KNN
from dsf.experiments.evaluations import Evaluator
from dsf.experiments.settings import Settings
from dsf.methods import Method
from dsf.training import Callback
from dsf.training.metrics import Line


class KNNMonitor(Callback):
    """k nearest neighbours before the first epoch, every few, and after the last.

    It only watches: no choice of the run depends on what it finds, which is of the test images.

    Args:
        settings: resolved ones.
        method: that is being trained.
        device: where it is.
        images: of splits that lie there already.
    """

    def __init__(
        self,
        settings: Settings,
        method: Method,
        device: torch.device,
        images: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.settings, self.method = settings, method
        self._evaluator = Evaluator(settings, device, images)
        bank = len(self._evaluator.task.train)
        self._protocol = KNN(settings.knn.k, settings.knn.temperature).at_most(bank)

    def epoch(self, epoch: int, step: int) -> Iterable[Line]:
        """A line where one is due."""
        if epoch % self.settings.knn.every == 0 or epoch == self.settings.epochs:
            accuracies = self._evaluator.numbers(self._protocol, self.method)
            lowered = self._protocol.lowered_from is not None
            note = {"k": self._protocol.k} if lowered else {}
            yield {"kind": "knn", "epoch": epoch, "step": step, **accuracies, **note}
