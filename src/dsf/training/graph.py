"""A training step recorded once as a CUDA graph, and replayed."""

from collections.abc import Callable

import torch
from torch import Tensor

from dsf.methods import MethodOutput

Step = Callable[[Tensor, Tensor, Tensor, bool], MethodOutput]
"""(samples, images, epoch, whether to diagnose) to the loss and diagnostics."""

_WARM_UP = 2


class StepGraph:
    """Replays a step, whose thousand kernels would take longer to launch than to run.

    The first steps run as they are, for whatever happens only once: compilation, cuDNN's choices,
    the optimiser's buffers. Then the step is recorded, with diagnostics and without, each when it
    is first asked for. All that a step depends on must be in tensors that stay where they are.

    Args:
        step: what to record; it may not wait for the device.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._done = {True: 0, False: 0}
        self._inputs: list[Tensor] = []
        self._recorded: dict[bool, tuple[torch.cuda.CUDAGraph, MethodOutput]] = {}

    def __call__(
        self, samples: Tensor, images: Tensor, epoch: Tensor, diagnose: bool
    ) -> MethodOutput:
        """Take one step."""
        if self._done[diagnose] < _WARM_UP:
            # Those with diagnostics come first, asked for or not: later they would need memory
            # beside the recorded step's.
            extended = diagnose or self._done[True] < _WARM_UP
            self._done[extended] += 1
            loss, diagnostics = self._step(samples, images, epoch, extended)
            return MethodOutput(loss, diagnostics if diagnose else {})
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
            raise RuntimeError(
                "the step cannot be recorded as a CUDA graph, since something in it waits for the "
                f"device; graph=false runs it without: {error}"
            ) from error
        return graph, output
