"""Projection heads: multi-layer perceptrons between encoder and loss."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

# name: layers, the hidden width where none is given (None: the input's), BatchNorm throughout.
HEADS: dict[str, tuple[int, int | None, bool]] = {
    "mlp": (2, None, False),
    "mlp-bn": (2, None, True),
    "mocov3-projector": (3, 4096, True),
    "mocov3-predictor": (2, 4096, True),
}


def create_head(name: str, inputs: int, outputs: int, hidden: int | None = None) -> nn.Sequential:
    """A head by name.

    ``mlp``: Linear, ReLU, Linear: the paper's head on CIFAR. Freshly initialised it maps all
    images almost to one point, which a divergence cannot tell from a tight cluster; training
    stalls there for many epochs.
    ``mlp-bn``: the same with BatchNorm after each layer, the last without affine parameters,
    which spreads the features from the first step on.
    ``mocov3-projector``, ``mocov3-predictor``: three and two layers of width 4,096, likewise.

    Args:
        name: one of ``HEADS``.
        inputs, outputs: dimensions of the features and of what the loss sees.
        hidden: width of the layers between, if not the head's own.
    """
    if name not in HEADS:
        raise ValueError(f"head must be one of {tuple(HEADS)}; got {name!r}")
    for label, width in (("inputs", inputs), ("outputs", outputs), ("hidden", hidden)):
        if width is not None and width < 1:
            raise ValueError(f"{label} must be at least 1; got {width}")
    layers, default, batch_norm = HEADS[name]
    between = hidden or default or inputs
    return _perceptron([inputs, *[between] * (layers - 1), outputs], batch_norm)


def _perceptron(widths: Sequence[int], batch_norm: bool) -> nn.Sequential:
    modules: list[nn.Module] = []
    last = len(widths) - 2
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        modules.append(nn.Linear(inputs, outputs, bias=not batch_norm))
        if batch_norm:
            modules.append(nn.BatchNorm1d(outputs, affine=layer < last))
        if layer < last:
            modules.append(nn.ReLU(inplace=True))
    return nn.Sequential(*modules)
