"""Is the training well? The spread of the features, collapse, and losses that are not finite."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from dsf.methods import Method

# Of unit features: 1 where they point everywhere, 0 where all are one. Trained ones have 0.5 to 1.
_SPREAD = 0.01
_MARGIN = 0.01


class Spread:
    """How far apart the projections of a batch lie: 1 - |mean|^2 of the unit vectors.

    Looks on only between :meth:`start` and :meth:`stop`.
    """

    def __init__(self, method: Method) -> None:
        self._values: list[Tensor] | None = None
        method.projector.register_forward_hook(self._look)

    def start(self) -> None:
        """Look on from here."""
        self._values = []

    def stop(self) -> dict[str, Tensor]:
        """The mean of what was seen, as a diagnostic."""
        values, self._values = self._values, None
        return {"feature_spread": torch.stack(values).mean()} if values else {}

    @torch.no_grad()
    def _look(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        if self._values is not None:
            unit = normalize(output.detach(), dim=-1)
            self._values.append(1 - unit.mean(dim=0).square().sum())


def collapsed(margin: float, spread: float) -> bool:
    """Whether the features of all images are one, nearly."""
    return abs(margin) <= _MARGIN and spread <= _SPREAD


def collapse_warning(epoch: int, means: dict[str, float]) -> str | None:
    """What to say of an epoch in which the features of all images were one."""
    margin, spread = means.get("margin"), means.get("feature_spread")
    if margin is None or spread is None or not collapsed(margin, spread):
        return None
    return (
        f"epoch {epoch}: the features of all images nearly coincide (spread {spread:.2g}, margin "
        f"{margin:.2g}): the training has collapsed, or has not left its start. A head without "
        "BatchNorm does that with DSF: try head=mlp-bn, or a lower learning rate"
    )


class NonFiniteLossError(ValueError):
    """A loss was infinite or not a number, or the weights are.

    Args:
        what: is not finite.
        lr: the learning rate.
        last: the newest whole checkpoint.
        bf16: whether the encoder computes in it.
    """

    def __init__(self, what: str, lr: float, last: Path | None, bf16: bool) -> None:
        kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
        precise = "; precision=fp32 shows whether bf16 is to blame" if bf16 else ""
        super().__init__(
            f"{what} not finite; {kept}. Most often the learning rate is too "
            f"high (here {lr:.3g}): try half of it, or schedule.warmup_epochs{precise}"
        )
