"""Whose a checkpoint is: projects by the names of their tensors."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsf.models.foreign.names import (
    Weights,
    from_sequence,
    from_shortcuts,
    from_torchvision_transformer,
    is_sequence,
    lacks_first_relu,
)

Colours = tuple[float, float, float]
IMAGENET: tuple[Colours, Colours] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_MOCO_CIFAR: tuple[Colours, Colours] = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_SOLO_CIFAR: tuple[Colours, Colours] = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))

# Heads of timm's transformers by width, which no tensor tells.
_HEADS: Mapping[int, int] = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}
_MOCOV3_HEADS: Mapping[int, int] = {384: 12, 768: 12, 1024: 16, 1280: 16}
# Of the other widths solo-learn has several transformers, and torchvision has none by name.
_WIDE_HEADS: Mapping[int, int] = {768: 12, 1024: 16, 1280: 16}

# Where files keep the tensors of a model, beside the optimiser and the like.
_CONTAINERS = ("state_dict", "model", "model_state_dict")
# What torch puts before the names of a wrapped model.
_WRAPPERS = ("module.", "_orig_mod.")
_CLASSIFIERS = ("fc.", "head.", "heads.", "classifier.")


@dataclass(frozen=True)
class Kind:
    """A project that writes checkpoints.

    Args:
        name: of the project.
        needs: the beginnings of names that all must occur; a tuple holds alternatives.
        prefix: of the encoder that the project evaluates.
        normalisation: mean and std of its images, if the encoder has the stem for large images.
        small: and if it has that for small ones.
        padding: of the first convolution in the latter case.
        heads: of its transformers, by width.
    """

    name: str
    needs: tuple[str | tuple[str, ...], ...]
    prefix: str = ""
    normalisation: tuple[Colours, Colours] = IMAGENET
    small: tuple[Colours, Colours] = IMAGENET
    padding: int = 1
    heads: Mapping[int, int] = field(default_factory=lambda: _HEADS)

    def fits(self, weights: Weights) -> bool:
        """Whether tensors of these names come from the project."""
        return all(any(name.startswith(need) for name in weights) for need in self.needs)

    def encoder(self, weights: Weights) -> "Found":
        """The encoder, by the names its tensors have in timm, without classifier or head."""
        found = {
            name.removeprefix(self.prefix): tensor
            for name, tensor in weights.items()
            if name.startswith(self.prefix)
        }
        first_relu = True
        if is_sequence(found):
            first_relu = not lacks_first_relu(found)
            found = from_sequence(found)
        if "conv_proj.weight" in found:
            found = from_torchvision_transformer(found)
        found = from_shortcuts(found)
        tensors = {name: t for name, t in found.items() if not name.startswith(_CLASSIFIERS)}
        return Found(self, tensors, first_relu)

    def described(self) -> str:
        """Its name, and by which names its checkpoints are known."""
        needs = (need if isinstance(need, str) else " or ".join(need) for need in self.needs)
        return f"{self.name} ({' and '.join(needs)})"


class Found(NamedTuple):
    """Whose an encoder is, its tensors, and whether a ReLU follows the first norm of a ResNet."""

    kind: Kind
    weights: dict[str, Tensor]
    first_relu: bool


# The first that fits counts.
KINDS = (
    Kind("MoCo v3", ("base_encoder.",), "base_encoder.", heads=_MOCOV3_HEADS),
    Kind("MoCo on CIFAR", ("encoder_q.net.",), "encoder_q.net.", small=_MOCO_CIFAR),
    Kind("MoCo", ("encoder_q.",), "encoder_q."),
    Kind("lightly", ("backbone.", ("projection_head.", "prediction_head.")), "backbone."),
    *(
        Kind(
            "solo-learn",
            (prefix, ("classifier.", "projector.")),
            prefix,
            small=_SOLO_CIFAR,
            padding=2,
            heads=_WIDE_HEADS,
        )
        for prefix in ("backbone.", "encoder.")  # now, and in its first years
    ),
    Kind("timm or torchvision", ("conv1.", "layer1.")),
    Kind("timm", ("patch_embed.proj.", "blocks.")),
    Kind("torchvision", ("conv_proj.", "encoder.layers."), heads=_WIDE_HEADS),
    Kind("an nn.Sequential of a ResNet", ("0.weight", "1.running_mean")),
)


def recognise(content: Any, where: str) -> Found:
    """The project of a file's content, and its encoder.

    Args:
        content: of the file.
        where: how errors call the file.
    """
    weights = _tensors(content, where)
    if any(name.startswith("method.encoder.") for name in weights):
        raise ValueError(f"{where} is part of a run: give the run's folder instead")
    for kind in KINDS:
        if kind.fits(weights):
            return kind.encoder(weights)
    raise ValueError(
        f"{where} holds no encoder that is known. Its tensors are called {_summary(weights)}; "
        f"understood are {', '.join(kind.described() for kind in KINDS)}"
    )


def _tensors(content: Any, where: str) -> dict[str, Tensor]:
    """The tensors of the model by name, without what wraps it."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{where} must hold tensors by name; got a {type(content).__name__}")
    inner = next((key for key in _CONTAINERS if isinstance(content.get(key), Mapping)), None)
    weights = content if inner is None else content[inner]
    found = {str(name): value for name, value in weights.items() if isinstance(value, Tensor)}
    if not found:
        entries = ", ".join(map(repr, list(weights)[:6])) or "nothing"
        raise ValueError(
            f"{where} holds no tensors by name, nor in {', '.join(_CONTAINERS)}; it has {entries}"
        )
    for name, value in found.items():
        odd = value.is_complex() or value.is_quantized or value.is_meta
        if odd or value.layout != torch.strided:
            raise ValueError(f"{where}: {name} must be a dense tensor of real numbers")
    for wrapper in _WRAPPERS * 2:
        if all(name.startswith(wrapper) for name in found):
            found = {name.removeprefix(wrapper): tensor for name, tensor in found.items()}
    return found


def _summary(weights: Weights) -> str:
    """The beginnings of the names, the most frequent first."""
    counts = Counter(".".join(name.split(".")[:2]) for name in weights)
    shown = [f"{start}.* ({count})" for start, count in counts.most_common(5)]
    return ", ".join(shown) + (", ..." if len(counts) > 5 else "")
