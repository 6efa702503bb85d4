"""MoCo v3 (Chen et al., 2021) for many views."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dsf.losses import ContrastiveLoss, DSFLoss
from dsf.methods._base import MethodOutput, beside, each_view, encode, encode_sides, head
from dsf.methods._momentum import MomentumMethod, both_ways
from dsf.models import create_head


class MoCoV3(MomentumMethod):
    """A predictor on the query side, keys of the batch, both directions; local views in both.

    Args:
        encoder, loss, projector, dimension, hidden: see :class:`dsf.methods.Method`; the loss has
            no memory bank and ``in_batch="cross"``. ``hidden`` is for both heads.
        predictor: a head by name or as a module.
        momentum: how much of itself the key side keeps in a step.
        momentum_steps: if given, the momentum rises to 1 in as many steps, by a half cosine: the
            length of the training.
        scale: of the sum of both directions. By default 2 * temperature for losses of cosines, as
            MoCo v3 has it, and 1 for DSF.
    """

    def __init__(
        self,
        encoder: nn.Module,
        loss: ContrastiveLoss[Any],
        projector: str | nn.Module = "mocov3-projector",
        predictor: str | nn.Module = "mocov3-predictor",
        dimension: int = 256,
        hidden: int | None = None,
        momentum: float = 0.99,
        momentum_steps: int | None = None,
        scale: float | None = None,
    ) -> None:
        if loss.queue is not None or loss.in_batch != "cross":
            raise ValueError("MoCoV3 takes a loss without a memory bank and with in_batch='cross'")
        super().__init__(encoder, loss, projector, dimension, hidden, momentum, momentum_steps)
        self._expected = dimension if isinstance(predictor, str) else None
        if isinstance(predictor, str):
            predictor = create_head(predictor, dimension, dimension, hidden)
        self.predictor = predictor
        if scale is None:
            temperature = loss.temperature
            if isinstance(temperature, Tensor):  # learned, from which the scale must not follow
                temperature = temperature.item()
            scale = 1.0 if isinstance(loss, DSFLoss) else 2 * temperature
        self.scale = scale

    def compute(self, views: Tensor, diagnose: bool, local: Tensor | None = None) -> MethodOutput:
        """The loss of two halves of the views, each through both encoders; local ones once."""
        small = None if local is None else each_view(self.predict, local)
        sides = encode_sides(self.encoder, views)
        out0, out1 = (beside(each_view(self._heads, side), small) for side in sides)
        with torch.no_grad():
            sides = encode_sides(self.key_encoder, views)
            key0, key1 = (each_view(partial(head, self.key_projector), side) for side in sides)
        one = self.contrast(out0, key1, diagnose)
        other = self.contrast(out1, key0, diagnose)
        return both_ways(one, other, self.scale)

    def predict(self, images: Tensor) -> Tensor:
        """The query side's predictions of keys for (N, 3, H, W) images."""
        return self._heads(encode(self.encoder, images))

    def _heads(self, features: Tensor) -> Tensor:
        projections = head(self.projector, features)
        width = projections.shape[-1]
        if self._expected not in (None, width):
            raise ValueError(
                f"dimension must be what the projector gives, {width}, for a predictor by name; "
                f"got {self._expected}"
            )
        return head(self.predictor, projections)
