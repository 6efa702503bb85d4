"""For torchvision: a state dict of the model that torchvision has for the encoder."""

from pathlib import Path
from typing import Any

from torch import nn

from dsf.experiments.exported import Source
from dsf.export.target import Loading, Target, arguments, cifar_stem, literal, write_weights
from dsf.models.foreign.names import to_torchvision_transformer
from dsf.models.pretrained import WEIGHTS

_RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")


class Torchvision(Target):
    """A state dict for a ResNet or a vision transformer of torchvision."""

    name, library = "torchvision", "torchvision"

    def write(self, source: Source, folder: Path) -> None:
        """Weights, by torchvision's names."""
        weights = source.encoder.state_dict()
        _make(source)
        if _is_transformer(source):
            weights = to_torchvision_transformer(weights)
        write_weights(folder, weights)

    def loadings(self, source: Source, folder: str) -> list[Loading]:
        """Into the model, without its classifier."""
        imports = (
            "import torch",
            "import torchvision",
            "from safetensors.torch import load_file",
        )
        weights = literal(str(Path(folder) / WEIGHTS))
        code = f"{_make(source)}encode.load_state_dict(load_file({weights}))\nencode.eval()\n"
        return [Loading("torchvision", imports, code)]

    def note(self, source: Source) -> str:
        """Why the stem is replaced."""
        if source.options.get("stem") != "cifar":
            return ""
        return (
            "torchvision's ResNets begin with a 7 x 7 convolution of stride 2 and a pooling: the "
            "code replaces both by what this encoder has for small images, a 3 x 3 convolution of "
            "stride 1 and no pooling."
        )


def _make(source: Source) -> str:
    """Code that makes the model without its classifier; ``ValueError`` if there is none."""
    library, _, own = source.name.rpartition("/")
    if library == "torchvision":
        return _named(own, source.options)
    if _is_transformer(source):
        return _transformer(source.encoder)
    if own in _RESNETS:
        stem = ""
        if source.options.get("stem") == "cifar":
            stem = cifar_stem(source.encoder.conv1.out_channels)  # type: ignore[union-attr, arg-type]
        return f"encode = torchvision.models.{own}()\nencode.fc = torch.nn.Identity()\n{stem}"
    raise ValueError(
        f"to: torchvision has no {source.name}, but {', '.join(_RESNETS)} and vision "
        "transformers; take timm, huggingface or onnx"
    )


def _is_transformer(source: Source) -> bool:
    names = source.encoder.state_dict().keys()
    plain = {"cls_token", "pos_embed", "patch_embed.proj.weight", "norm.weight"} <= names
    return plain and source.name.startswith(("mocov3-vit", "timm/vit_"))


def _transformer(encoder: Any) -> str:
    block = encoder.blocks[0]
    return (
        "encode = torchvision.models.VisionTransformer(\n"
        f"    image_size={encoder.patch_embed.img_size[0]},\n"
        f"    patch_size={encoder.patch_embed.patch_size[0]},\n"
        f"    num_layers={len(encoder.blocks)},\n"
        f"    num_heads={block.attn.num_heads},\n"
        f"    hidden_dim={encoder.embed_dim},\n"
        f"    mlp_dim={block.mlp.fc1.out_features},\n"
        ")\n"
        "encode.heads = torch.nn.Identity()\n"
    )


def _named(name: str, options: dict[str, Any]) -> str:
    import torchvision

    model: nn.Module = torchvision.models.get_model(name, **options)
    path = list(model.named_modules())[-1][0]
    classifier = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))
    return (
        f"encode = torchvision.models.get_model({literal(name)}{arguments(options)})\n"
        f"encode{classifier} = torch.nn.Identity()\n"
    )
