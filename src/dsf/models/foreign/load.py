"""A file of weights to an encoder."""

import argparse
import hashlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dsf.models.encoders import create_encoder
from dsf.models.foreign.kinds import Colours, recognise
from dsf.models.foreign.shapes import describe_encoder, has_small_stem

SUFFIXES = (".pth", ".pt", ".tar", ".ckpt", ".bin", ".safetensors")
_OPTIONS = ("encoder", "num_heads", "mean", "std")


@dataclass(frozen=True)
class Foreign:
    """An encoder out of somebody's file.

    Args:
        encoder: with the weights.
        kind: whose file it is.
        name: what ``create_encoder`` calls it.
        options: and what it was given for it.
        image_size: of the images it was made for; None for a transformer, which says it itself.
        mean: of these images.
        std: likewise.
        sha256: of the file.
    """

    encoder: nn.Module
    kind: str
    name: str
    options: dict[str, Any]
    image_size: int | None
    mean: Colours
    std: Colours
    sha256: str


def load_foreign(path: str | Path, options: Mapping[str, Any] | None = None) -> Foreign:
    """The encoder in a checkpoint of another project.

    Understood are those of MoCo v3 and of the paper's authors, MoCo, lightly, solo-learn, and
    state dicts of timm's and torchvision's ResNets and vision transformers. Whose it is, and which
    encoder, is told by the names and shapes of the tensors. Nothing in the file is executed.

    Args:
        path: a file of ``torch.save`` or safetensors.
        options: what the file does not say: ``encoder``, a name such as timm/convnext_tiny whose
            tensors have the file's names; ``num_heads`` of a transformer; ``mean`` and ``std`` of
            its images.
    """
    path, chosen = Path(path), dict(options or {})
    for option in chosen.keys() - set(_OPTIONS):
        raise ValueError(f"options of a checkpoint are {', '.join(_OPTIONS)}; got {option!r}")
    heads = chosen.get("num_heads")
    if not (heads is None or (type(heads) is int and heads > 0)):
        raise ValueError(f"num_heads must be an int of at least 1; got {heads!r}")
    kind, weights, first_relu = recognise(read(path), str(path))
    try:
        if "encoder" in chosen:
            name, made_with = str(chosen["encoder"]), {}
            if heads is not None:
                made_with = {"num_heads": heads}
        else:
            name, made_with = describe_encoder(kind, weights, heads)
        encoder = create_encoder(name, **made_with)
        _fill(encoder, weights)
    except IndexError as error:
        raise ValueError(
            f"{path}, a checkpoint of {kind.name}: its tensors have shapes of no encoder"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}, a checkpoint of {kind.name}: {error}") from error
    small = has_small_stem(weights)
    if small and kind.padding != 1:
        encoder.conv1.padding = (kind.padding, kind.padding)  # type: ignore[union-attr]
    if not first_relu:
        encoder.act1 = nn.Identity()
    mean, std = kind.small if small else kind.normalisation
    return Foreign(
        encoder.eval(),
        kind.name,
        name,
        made_with,
        _image_size(encoder, small),
        _colours("mean", chosen.get("mean", mean)),
        _colours("std", chosen.get("std", std)),
        _sha256(path),
    )


def read(path: Path) -> Any:
    """The content of a file of ``torch.save`` or safetensors, without running any of it."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
    try:
        # Many trainers keep their arguments beside the weights: names and values, nothing more.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        if asked is None:
            raise ValueError(f"{path} is not a file of torch.save, or damaged") from None
        raise ValueError(
            f"{path} holds more than tensors and plain values, which is not read, since it would "
            f"run code ({asked[1]}): keep its state_dict alone, by torch.save or safetensors"
        ) from None
    except Exception:  # a damaged one fails in any way
        raise ValueError(f"{path} is not a file of torch.save, or damaged") from None


@torch.no_grad()
def _fill(encoder: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy all tensors; the counters of BatchNorm alone, which old files lack, may be missing."""
    own = encoder.state_dict()
    missing = [
        name for name in own if name not in weights and not name.endswith("num_batches_tracked")
    ]
    beyond = [name for name in weights if name not in own]
    for what, names in (("lacks", missing), ("has, beyond the encoder's,", beyond)):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(f"it {what} {names[0]}{more}")
    for name, tensor in weights.items():
        if own[name].shape != tensor.shape:
            raise ValueError(
                f"{name} has the shape {tuple(tensor.shape)}; the encoder's has "
                f"{tuple(own[name].shape)}"
            )
        own[name].copy_(tensor)


def _image_size(encoder: nn.Module, small: bool) -> int | None:
    if hasattr(encoder, "patch_embed"):
        return None
    return 32 if small else 224


def _colours(name: str, value: Any) -> Colours:
    try:
        red, green, blue = (float(part) for part in value)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be three numbers, such as [0.5,0.5,0.5]; got {value!r}"
        ) from None
    return red, green, blue


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
