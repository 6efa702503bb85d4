"""For timm: a folder that ``timm.create_model`` takes, or weights for a model it lets one make."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from dsf.experiments.exported import Source
from dsf.export.target import Loading, Target, arguments, cifar_stem, literal, write_weights
from dsf.files import write_json
from dsf.models.pretrained import CONFIG, SECTION, WEIGHTS

_TRANSFORMERS = {
    "mocov3-vit-small": "vit_small_patch16_224",
    "mocov3-vit-base": "vit_base_patch16_224",
}
_MOCOV3_HEADS = 12
# Before 1.0.26 timm reads such folders, but no safetensors in them.
LOCAL = (
    'From timm 1.0.26 on, `timm.create_model("local-dir:FOLDER", pretrained=True)` loads this '
    "folder by itself; the code below does the same with any version."
)
# What only says how weights begin, or what dsf's own constructors take.
_OURS = ("stem", "width", "image_size", "freeze_patch_embed", "zero_init_last", "weight_init")


class Model(NamedTuple):
    """A model of timm: the name and the arguments of ``timm.create_model``."""

    architecture: str
    options: dict[str, Any]


def find_model(source: Source) -> Model | None:
    """The model of timm that the encoder is, if it can be made by its name alone."""
    name = source.name
    options = {key: value for key, value in source.options.items() if key not in _OURS}
    if name in _TRANSFORMERS:
        size = {"img_size": source.image_size, "num_heads": _MOCOV3_HEADS}
        return Model(_TRANSFORMERS[name], size | options)
    if name.startswith("timm/"):
        return Model(name.removeprefix("timm/"), dict(source.options))
    if name.startswith("resnet") and name != "resnet-small":
        return None if source.options.get("stem") == "cifar" else Model(name, options)
    return None


def make_config(source: Source, model: Model) -> dict[str, Any]:
    """The config.json by which timm, and transformers too, make and load it."""
    known = getattr(source.encoder, "pretrained_cfg", None) or {}
    transformer = hasattr(source.encoder, "patch_embed")
    return {
        "architecture": model.architecture,
        "num_classes": 0,
        "num_features": source.features,
        "model_args": model.options,
        "pretrained_cfg": {
            "input_size": [3, source.image_size, source.image_size],
            "fixed_input_size": transformer,
            "interpolation": "bilinear",
            "crop_pct": source.shown_share,
            "crop_mode": "center",
            "mean": list(source.mean),
            "std": list(source.std),
            "num_classes": 0,
            "first_conv": known.get("first_conv"),
            "classifier": known.get("classifier"),
        },
    }


class Timm(Target):
    """A folder of timm's own format, where timm can make the encoder by its name."""

    name, library = "timm", "timm"

    def write(self, source: Source, folder: Path) -> None:
        """Weights, and the config.json by which they are loaded."""
        _check(source)
        model = find_model(source)
        config: dict[str, Any] = make_config(source, model) if model else {}
        write_json(folder / CONFIG, config | {SECTION: source.section()})
        write_weights(folder, source.encoder.state_dict())

    def loadings(self, source: Source, folder: str) -> list[Loading]:
        """By its name, or into a ResNet whose stem is replaced."""
        model = find_model(source)
        return [by_name(model, folder) if model else _small_stem(source, folder)]

    def note(self, source: Source) -> str:
        """Why there is more to do than to name it, or a shorter way."""
        if find_model(source):
            return LOCAL
        return (
            "timm's ResNets begin with a 7 x 7 convolution of stride 2 and a pooling, and no "
            "argument changes that: the code replaces both by what this encoder has for small "
            "images, a 3 x 3 convolution of stride 1 and no pooling, and then loads the weights."
        )


def by_name(model: Model, folder: str) -> Loading:
    """A model of timm with the weights of a folder."""
    options = "".join(f"    {name}={literal(value)},\n" for name, value in model.options.items())
    code = (
        "encode = timm.create_model(\n"
        f"    {literal(model.architecture)},\n    num_classes=0,\n{options}"
        f"    checkpoint_path={literal(str(Path(folder) / WEIGHTS))},\n"
        ").eval()\n"
    )
    return Loading("timm", ("import timm",), code)


def _check(source: Source) -> None:
    if source.name.startswith("torchvision/"):
        raise ValueError(
            f"to: timm has other models than {source.name}; take torchvision, huggingface or onnx"
        )


def _small_stem(source: Source, folder: str) -> Loading:
    """A ResNet with the CIFAR stem."""
    stem: nn.Module = source.encoder.conv1  # type: ignore[assignment]
    width: int = stem.out_channels  # type: ignore[assignment]
    options = {key: value for key, value in source.options.items() if key not in _OURS}
    imports = ["import timm", "import torch"]
    if source.name == "resnet-small":
        imports.append("from timm.models.resnet import BasicBlock, ResNet")
        channels = tuple(width * factor for factor in (1, 2, 4, 8))
        make = (
            "encode = ResNet(\n"
            '    BasicBlock, (1, 1, 1, 1), num_classes=0, stem_type="deep",\n'
            f"    stem_width={width // 2}, channels={channels}{arguments(options)}\n"
            ")\n"
        )
    else:
        name = literal(source.name)
        make = f"encode = timm.create_model({name}, num_classes=0{arguments(options)})\n"
    weights = literal(str(Path(folder) / WEIGHTS))
    code = f"{make}{cifar_stem(width)}timm.models.load_checkpoint(encode, {weights})\n"
    return Loading("timm", tuple(imports), f"{code}encode.eval()\n")
