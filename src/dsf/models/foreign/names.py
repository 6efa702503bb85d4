"""What the same tensors are called elsewhere."""

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

Weights = Mapping[str, Tensor]

# torchvision's transformers beside timm's, whose computations are the same.
_TRANSFORMER = (
    ("class_token", "cls_token"),
    ("conv_proj.", "patch_embed.proj."),
    ("encoder.pos_embedding", "pos_embed"),
    ("encoder.ln.", "norm."),
)
_LAYER = ("encoder.layers.encoder_layer_", "blocks.")
_IN_LAYER = (
    ("ln_1.", "norm1."),
    ("self_attention.in_proj_", "attn.qkv."),
    ("self_attention.out_proj.", "attn.proj."),
    ("ln_2.", "norm2."),
    ("mlp.0.", "mlp.fc1."),
    ("mlp.3.", "mlp.fc2."),
)
_STEM = ("conv1", "bn1")


def to_torchvision_transformer(weights: Weights) -> dict[str, Tensor]:
    """Tensors of timm's vision transformer under torchvision's names."""
    return {_renamed(name, 1, 0): tensor for name, tensor in weights.items()}


def from_torchvision_transformer(weights: Weights) -> dict[str, Tensor]:
    """And the other way round."""
    return {_renamed(name, 0, 1): tensor for name, tensor in weights.items()}


def _renamed(name: str, old: int, new: int) -> str:
    for pair in _TRANSFORMER:
        if name.startswith(pair[old]):
            return pair[new] + name.removeprefix(pair[old])
    if not name.startswith(_LAYER[old]):
        return name
    number, _, rest = name.removeprefix(_LAYER[old]).partition(".")
    for pair in _IN_LAYER:
        if rest.startswith(pair[old]):
            rest = pair[new] + rest.removeprefix(pair[old])
            break
    return f"{_LAYER[new]}{number}.{rest}"


def is_sequence(names: Iterable[str]) -> bool:
    """Whether these are the names of a ResNet that was taken apart into an ``nn.Sequential``."""
    found = set(names)
    return "0.weight" in found and any(re.match(r"\d+\.0\.conv1\.", name) for name in found)


def lacks_first_relu(names: Iterable[str]) -> bool:
    """Whether the ReLU after the first norm got lost when such a ResNet was taken apart.

    It does where it is no child but part of ``forward``, as in lightly's own ResNet: the four
    layers then follow the norm without a gap.
    """
    return any(name.startswith("2.0.conv1.") for name in names)


def from_sequence(weights: Weights) -> dict[str, Tensor]:
    """Tensors of such a ResNet by the names of its layers; what comes after these is left out.

    Its first two children are the first convolution and its BatchNorm; ReLU and pooling, which
    some projects leave out, have no tensors but shift the numbers of the four layers.
    """
    stages = sorted({int(found[1]) for name in weights if (found := _BLOCK.match(name))})
    parts = {str(number): layer for number, layer in enumerate(_STEM)}
    parts |= {str(number): f"layer{count}" for count, number in enumerate(stages, start=1)}
    result = {}
    for name, tensor in weights.items():
        number, _, rest = name.partition(".")
        if number in parts:
            result[f"{parts[number]}.{rest}"] = tensor
    return result


_BLOCK = re.compile(r"(\d+)\.\d+\.conv1\.")


def from_shortcuts(weights: Weights) -> dict[str, Tensor]:
    """Tensors of lightly's own ResNet, which calls the way around a block otherwise."""
    return {name.replace(".shortcut.", ".downsample."): tensor for name, tensor in weights.items()}
