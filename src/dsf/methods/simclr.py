"""SimCLR (Chen et al., 2020) for many views."""

from typing import Any

from torch import Tensor, nn

from dsf.losses import ContrastiveLoss
from dsf.methods._base import Method, MethodOutput, beside, each_view, halves


class SimCLR(Method):
    """One encoder for all views; every half of an image contrasts with every other of the batch.

    With ``contrast="dcl"`` in the loss it is DCL (Yeh et al., 2022). Having no keys, it adds local
    views to the first half, which contrasts with both. Arguments: see
    :class:`dsf.methods.Method`; the loss has no memory bank and ``in_batch="both"``.
    """

    def __init__(
        self,
        encoder: nn.Module,
        loss: ContrastiveLoss[Any],
        projector: str | nn.Module = "mlp-bn",
        dimension: int = 128,
        hidden: int | None = None,
    ) -> None:
        if loss.queue is not None or loss.in_batch != "both":
            raise ValueError("SimCLR takes a loss without a memory bank and with in_batch='both'")
        super().__init__(encoder, loss, projector, dimension, hidden)

    def compute(self, views: Tensor, diagnose: bool, local: Tensor | None = None) -> MethodOutput:
        """The loss of two halves of the views."""
        first, second = halves(each_view(self.project, views))
        small = None if local is None else each_view(self.project, local)
        return self.contrast(beside(first, small), second, diagnose)
