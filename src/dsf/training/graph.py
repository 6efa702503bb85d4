"""A training step recorded once as a CUDA graph, and replayed."""

from collections.abc import Callable

import torch
from torch import Tensor

from dsf.methods import MethodOutput

Step = Callable[[Tensor, Tensor, Tensor, bool], MethodOutput]
"""(samples, images, epoch, whether to diagnose) to the loss and diagnostics."""


class StepGraph:
    """Replays a step, whose thousand kernels would take longer to launch than to run.

    Steps run as they are until one with diagnostics and one without have, for whatever happens
    only once: compilation, cuDNN's choices, the optimiser's buffers. From then on each kind is
    recorded when it is next asked for. Until then, since memory for a step that runs as it is
    would be needed beside that of a recorded one. A step gives the same numbers either way. All
    that it depends on must be in tensors that stay where they are.

    Args:
        step: what to record; it may not wait for the device.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._warm = {True: False, False: False}
        self._inputs: list[Tensor] = []
        self._recorded: dict[bool, tuple[torch.cuda.CUDAGraph, MethodOutput]] = {}

    def __call__(
        self, samples: Tensor, images: Tensor, epoch: Tensor, diagnose: bool
    ) -> MethodOutput:
        """Take one step."""
        if not all(self._warm.values()):
            self._warm[diagnose] = True
            return self._step(samples, images, epoch, diagnose)
        if not self._inputs:
            self._inputs = [x.clone() for x in (samples, images, epoch)]
        for static, value in zip(self._inputs, (samples, images, epoch), strict=True):
            static.copy_(value)
        if diagnose not in self._recorded:
            self._recorded[diagnose] = self._record(diagnose)
        graph, output = self._recorded[diagnose]
        graph.replay()
        # The next replay writes to the same memory.
        diagnostics = {name: value.clone() for name, value in output.diagnostics.items()}
        return MethodOutput(output.loss.clone(), diagnostics)

    def _record(self, diagnose: bool) -> tuple[torch.cuda.CUDAGraph, MethodOutput]:
        graph = torch.cuda.CUDAGraph()
        # The two never run at once, so they may share their memory.
        pool = next((other.pool() for other, _ in self._recorded.values()), None)
        samples, images, epoch = self._inputs
        try:
            with torch.cuda.graph(graph, pool=pool):
                output = self._step(samples, images, epoch, diagnose)
        except RuntimeError as error:
            raise ValueError(
                "graph: the step cannot be recorded as a CUDA graph, most often since something in "
                f"it waits for the device; graph=false runs it without one ({error})"
            ) from error
        return graph, output
