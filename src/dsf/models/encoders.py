"""Encoders by name: images (N, 3, H, W) to features (N, F)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from dsf.models.transformer import PatchConvolution, with_kernels

Stem = Literal["imagenet", "cifar"]


def create_encoder(name: str, **options: Any) -> nn.Module:
    """An untrained encoder without its classifier; its ``num_features`` is F.

    ``resnet18``, ``resnet34``, ``resnet50``: ``stem="cifar"`` starts with a 3 x 3 convolution of
    stride 1 and no pooling, for images of 32 pixels, instead of ``"imagenet"``.
    ``resnet-small``: one narrow block a stage and the CIFAR stem, for work on a CPU.
    ``mocov3-vit-small``, ``mocov3-vit-base``: MoCo v3's transformers with patches of 16 pixels,
    fixed sine-cosine positions, a class token whose last state are the features, and a frozen
    random patch embedding (``freeze_patch_embed``), for images of ``image_size`` pixels.
    ``timm/NAME``, ``torchvision/NAME``: any classifier of these libraries.

    Args:
        name: one of ``ENCODERS``, or a library's.
        options: the above, and whatever else the library's own constructor takes.

    Example:
        >>> encoder = create_encoder("resnet18", stem="cifar").eval()
        >>> encoder.num_features, encoder(torch.zeros(2, 3, 32, 32)).shape
        (512, torch.Size([2, 512]))
    """
    library, slash, model = name.partition("/")
    if name in ENCODERS:
        make: Callable[..., nn.Module] = ENCODERS[name]
    elif slash and library in _LIBRARIES:
        make = partial(_LIBRARIES[library], model)
    else:
        libraries = ", ".join(f"{library}/NAME" for library in _LIBRARIES)
        raise ValueError(f"encoder must be one of {tuple(ENCODERS)}, {libraries}; got {name!r}")
    try:
        return make(**options)
    except (TypeError, AssertionError) as error:
        raise ValueError(f"encoder {name!r} does not take these options: {error}") from error


def feature_dimension(encoder: nn.Module) -> int:
    """F, by the encoder's attribute ``num_features``."""
    if isinstance(encoder, str):
        raise ValueError(
            f"encoder must be a module, such as create_encoder({encoder!r}); got {encoder!r}"
        )
    width = getattr(encoder, "num_features", None)
    if not isinstance(width, int):
        raise ValueError(
            f"{type(encoder).__name__} does not say how many features it gives: set its attribute "
            "num_features, or hand over heads as modules instead of names"
        )
    return width


def _resnet(name: str, stem: Stem = "imagenet", **options: Any) -> nn.Module:
    if stem not in get_args(Stem):
        raise ValueError(f"stem must be one of {get_args(Stem)}; got {stem!r}")
    # Residual branches start alive, as in torchvision and in the codes of MoCo.
    settings = {"zero_init_last": False, **options}
    model = _timm(name, **settings)
    return _cifar_stem(model) if stem == "cifar" else model


def _small_resnet(width: int = 16, **options: Any) -> nn.Module:
    from timm.models.resnet import BasicBlock, ResNet

    settings = {"zero_init_last": False, **options}
    channels = (width, 2 * width, 4 * width, 8 * width)
    # The deep stem is the only one whose width timm leaves open; the CIFAR stem takes its place.
    model = ResNet(
        BasicBlock,  # type: ignore[arg-type]
        (1, 1, 1, 1),
        num_classes=0,
        stem_type="deep",
        stem_width=width // 2,
        channels=channels,
        **settings,
    )
    return _cifar_stem(model)


def _cifar_stem(model: nn.Module) -> nn.Module:
    width = model.bn1.num_features  # type: ignore[union-attr]
    images = next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d)).in_channels
    convolution = nn.Conv2d(images, width, kernel_size=3, padding=1, bias=False)  # type: ignore[arg-type]
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    model.conv1 = convolution
    model.maxpool = nn.Identity()
    return model


def _mocov3_vit(
    name: str,
    image_size: int = 224,
    freeze_patch_embed: bool = True,
    **options: Any,
) -> nn.Module:
    if image_size < 16 or image_size % 16:
        raise ValueError(f"image_size must be a multiple of the patches' 16; got {image_size}")
    # Twelve heads in both sizes, as MoCo v3 has them.
    settings = {"num_heads": 12, **options}
    # timm's "moco" draws queries, keys and values as three dense layers, and zeroes biases; the
    # patch embedding is left to us.
    model: Any = _timm(name, img_size=image_size, weight_init="moco", **settings)
    projection = PatchConvolution(model.patch_embed.proj.in_channels, model.embed_dim, (16, 16))
    bound = math.sqrt(6 / (projection.weight[0].numel() + model.embed_dim))
    nn.init.uniform_(projection.weight, -bound, bound)
    nn.init.zeros_(projection.bias)  # type: ignore[arg-type]
    model.patch_embed.proj = projection
    model.blocks = with_kernels(model.blocks)
    projection.requires_grad_(not freeze_patch_embed)
    rows, columns = model.patch_embed.grid_size
    positions = sine_cosine_positions(rows, columns, model.embed_dim)
    class_token = torch.zeros(1, model.embed_dim)
    fixed = torch.cat([class_token, positions])[None]
    # timm makes others without a word, which would fail at their first images.
    patches, places = model.patch_embed.patch_size, getattr(model.pos_embed, "shape", None)
    if patches != (16, 16) or places != fixed.shape:
        raise ValueError(
            "MoCo v3's transformers have patches of 16 pixels, and beside them a class token only; "
            f"got {options}: timm/{name} takes other patches and tokens"
        )
    model.pos_embed = nn.Parameter(fixed, requires_grad=False)
    return model  # type: ignore[no-any-return]


def sine_cosine_positions(height: int, width: int, dimension: int) -> Tensor:
    """Fixed positions of patches, (height * width, dimension), which 4 must divide.

    Sines and cosines of the row, then of the column, at the dimension / 4 = n frequencies
    10,000^(-k / n), k < n: on a square grid the very numbers of MoCo v3.
    """
    if dimension % 4:
        raise ValueError(f"dimension must be a multiple of 4; got {dimension}")
    frequencies = 1e4 ** -(torch.arange(dimension // 4, dtype=torch.float64) / (dimension // 4))
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    angles = [axis.flatten()[:, None] * frequencies for axis in (rows, columns)]
    return torch.cat([f(angle) for angle in angles for f in (torch.sin, torch.cos)], dim=1).float()


# Libraries are imported by the encoders that need them: they take longer than all of dsf.


def _timm(name: str, **options: Any) -> nn.Module:
    import timm

    try:
        model: nn.Module = timm.create_model(name, num_classes=0, **options)
    except RuntimeError as error:
        raise ValueError(f"timm has no model {name!r}: {error}") from error
    # Some have a layer between their last map, whose width timm calls num_features, and the
    # classifier: what comes out without the classifier is as wide as that layer.
    model.num_features = getattr(model, "head_hidden_size", None) or model.num_features
    return model


def _torchvision(name: str, **options: Any) -> nn.Module:
    import torchvision

    if name not in torchvision.models.list_models(module=torchvision.models):
        raise ValueError(f"torchvision has no classifier {name!r}")
    model: nn.Module = torchvision.models.get_model(name, **options)
    path, classifier = list(model.named_modules())[-1]
    if not isinstance(classifier, nn.Linear):
        raise ValueError(f"torchvision's {name!r} does not end in a linear classifier")
    parent, _, child = path.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())
    model.num_features = classifier.in_features  # type: ignore[assignment]
    return model


ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": partial(_resnet, "resnet18"),
    "resnet34": partial(_resnet, "resnet34"),
    "resnet50": partial(_resnet, "resnet50"),
    "resnet-small": _small_resnet,
    "mocov3-vit-small": partial(_mocov3_vit, "vit_small_patch16_224"),
    "mocov3-vit-base": partial(_mocov3_vit, "vit_base_patch16_224"),
}
_LIBRARIES: dict[str, Callable[..., nn.Module]] = {"timm": _timm, "torchvision": _torchvision}
