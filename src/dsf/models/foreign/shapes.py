"""Which encoder tensors belong to, told by their names and shapes."""

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dsf.models.encoders import sine_cosine_positions
from dsf.models.foreign.kinds import Kind
from dsf.models.foreign.names import Weights

# Whether the blocks are bottlenecks, and how many there are in each stage.
_RESNETS: dict[tuple[bool, tuple[int, ...]], str] = {
    (False, (2, 2, 2, 2)): "resnet18",
    (False, (3, 4, 6, 3)): "resnet34",
    (True, (3, 4, 6, 3)): "resnet50",
    (True, (3, 4, 23, 3)): "timm/resnet101",
    (True, (3, 8, 36, 3)): "timm/resnet152",
}
_NARROW = (False, (1, 1, 1, 1))
_TRANSFORMERS = {192: "tiny", 384: "small", 768: "base", 1024: "large"}
_MOCOV3_HEADS = {192: 12, 384: 12, 768: 12}
# Of the kernel of the first convolution.
_LARGE, _SMALL = 7, 3


def describe_encoder(kind: Kind, weights: Weights, heads: int | None) -> tuple[str, dict[str, Any]]:
    """The name and options with which ``create_encoder`` makes it.

    Args:
        kind: whose it is.
        weights: its tensors by timm's names.
        heads: of a transformer, if not those its project has.
    """
    if "patch_embed.proj.weight" in weights:
        return _transformer(kind, weights, heads)
    if "conv1.weight" in weights:
        return _resnet(weights)
    names = ", ".join(list(weights)[:4])
    raise ValueError(
        f"neither a ResNet (conv1.weight) nor a vision transformer (patch_embed.proj.weight): "
        f"its tensors are {names}, ...; encoder=timm/NAME says which model it is"
    )


def has_small_stem(weights: Weights) -> bool:
    """Whether it is a ResNet for images of CIFAR's size."""
    return "conv1.weight" in weights and weights["conv1.weight"].shape[-1] == _SMALL


def _resnet(weights: Weights) -> tuple[str, dict[str, Any]]:
    width, kernel = weights["conv1.weight"].shape[0], weights["conv1.weight"].shape[-1]
    stages = tuple(_count(rf"layer{number}\.(\d+)\.", weights) for number in (1, 2, 3, 4))
    shape = ("layer1.0.conv3.weight" in weights, stages)
    if kernel not in (_LARGE, _SMALL):
        raise ValueError(
            f"conv1 has a kernel of {kernel} pixels; those of {_LARGE} and {_SMALL} are known"
        )
    small = kernel == _SMALL
    if shape == _NARROW and small:
        return "resnet-small", {"width": width}
    name = _RESNETS.get(shape)
    if name is None or (small and "/" in name):
        blocks = "bottlenecks" if shape[0] else "blocks"
        raise ValueError(
            f"a ResNet with {stages} {blocks} and a first kernel of {kernel} is not known; "
            "encoder=timm/NAME says which model it is"
        )
    return name, ({"stem": "cifar"} if small else {})


def _transformer(kind: Kind, weights: Weights, heads: int | None) -> tuple[str, dict[str, Any]]:
    width, _, _, patch = weights["patch_embed.proj.weight"].shape
    if "cls_token" not in weights or "pos_embed" not in weights or width not in _TRANSFORMERS:
        raise ValueError(
            f"a transformer of width {width} must have cls_token and pos_embed and one of the "
            f"widths {tuple(_TRANSFORMERS)}; encoder=timm/NAME says which model it is"
        )
    side = math.isqrt(weights["pos_embed"].shape[1] - 1)
    if _has_mocov3_positions(weights["pos_embed"], side):
        heads = heads or _MOCOV3_HEADS.get(width)
    heads = heads or kind.heads.get(width)
    if heads is None:
        raise ValueError(
            f"no tensor tells how many heads a transformer of {kind.name} of width {width} has: "
            "say it by num_heads=12 (MoCo v3's) or num_heads=6, or 3 if the width is 192"
        )
    depth = _count(r"blocks\.(\d+)\.", weights)
    size: dict[str, Any] = {"num_heads": heads}
    own = f"mocov3-vit-{_TRANSFORMERS[width]}"
    if kind.name == "MoCo v3" and patch == 16 and width in (384, 768):
        return own, size | {"image_size": patch * side, "depth": depth}
    size |= {"img_size": patch * side, "patch_size": patch, "depth": depth}
    return f"timm/vit_{_TRANSFORMERS[width]}_patch16_224", size


def _has_mocov3_positions(positions: Tensor, side: int) -> bool:
    """Whether they are MoCo v3's fixed ones, which other transformers of small width have not."""
    if positions.shape[1] != side * side + 1 or positions.shape[2] % 4:
        return False
    expected = sine_cosine_positions(side, side, positions.shape[2])
    return torch.allclose(positions[0, 1:].float(), expected, atol=1e-4)


def _count(pattern: str, weights: Mapping[str, Any]) -> int:
    return len({found[1] for name in weights if (found := re.match(pattern, name))})
