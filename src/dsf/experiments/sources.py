"""From what the command line names to an encoder: a library's, a checkpoint's, an exported one."""

import difflib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from dsf.experiments.nearby import run_hint
from dsf.files import read_json
from dsf.models import ENCODERS, create_encoder
from dsf.models.foreign import SUFFIXES, load_foreign
from dsf.models.pretrained import CONFIG, WEIGHTS, from_pretrained, is_exported

_LIBRARIES = ("timm/", "torchvision/")


def is_run(source: str | Path | nn.Module) -> bool:
    """Whether a source is meant to be the folder of a run, and not an encoder or its weights."""
    if isinstance(source, nn.Module) or is_weights(source):
        return False
    named = str(source) in ENCODERS or str(source).startswith(_LIBRARIES)
    return Path(source).is_dir() or not named


def near_encoder(source: str | Path) -> str | None:
    """The encoder that somebody may have meant who named what is neither one nor a run."""
    if Path(source).exists() or run_hint(source):
        return None
    return next(iter(difflib.get_close_matches(str(source), ENCODERS, 1)), None)


def is_weights(source: str | Path) -> bool:
    """Whether a source is meant to be weights: somebody's checkpoint, or an exported folder."""
    path = Path(source)
    if path.is_dir():
        return is_exported(path) and not (path / "config.yaml").exists()
    return path.is_file() or path.suffix in SUFFIXES


class Found(NamedTuple):
    """An encoder, what it is called, what protocols say of it, and how it sees images."""

    encoder: nn.Module
    label: str
    about: dict[str, Any]
    size: int | None
    normalisation: dict[str, Any]


def find_encoder(
    source: str | nn.Module, options: dict[str, Any], pretrained: bool = False, seed: int = 0
) -> Found:
    """The encoder that a source names.

    Args:
        source: of ``dsf.models.create_encoder``, a checkpoint, an exported folder, or a module.
        options: what else a named encoder or a checkpoint takes.
        pretrained: with the weights that its library has for it; otherwise random ones.
        seed: of random weights.
    """
    if isinstance(source, str) and is_weights(source):
        if pretrained:
            raise ValueError(f"pretrained: {source} has its own weights")
        path = Path(source)
        if path.name == WEIGHTS and is_exported(path.parent):
            path = path.parent  # its config.json says what no tensor does
        return _exported(path, options) if path.is_dir() else _foreign(path, options)
    if isinstance(source, str):
        name, encoder = source, _create(source, options, pretrained, seed)
        weights = "pretrained" if pretrained else f"random, seed {seed}"
    else:
        name, encoder, weights = type(source).__name__, source, "given"
    known = getattr(encoder, "pretrained_cfg", None) or {}
    about = {
        "encoder": {"name": name, "options": options},
        "weights": weights,
        "checkpoint": known.get("tag") if pretrained else None,
    }
    size = None
    if name.startswith(_LIBRARIES):
        size = known.get("input_size", (3, 224, 224))[-1]
    return Found(encoder, name, about, size, _normalisation(known))


def _foreign(path: Path, options: dict[str, Any]) -> Found:
    """A checkpoint of somebody else."""
    found = load_foreign(path, options)
    normalisation = {"mean": list(found.mean), "std": list(found.std)}
    about = {
        "encoder": {"name": found.name, "options": found.options},
        "weights": f"a checkpoint of {found.kind}",
        "checkpoint": path.name,
        "checkpoint_sha256": found.sha256,
        "normalisation": normalisation,
    }
    return Found(found.encoder, path.name.split(".")[0], about, found.image_size, normalisation)


def _exported(path: Path, options: dict[str, Any]) -> Found:
    """What ``dsf export`` wrote."""
    if options:
        raise ValueError(f"options: {path} says itself how its encoder is made; got {options!r}")
    encoder = from_pretrained(path)
    known: Mapping[str, Any] = encoder.pretrained_cfg  # type: ignore[assignment]
    about = {
        "encoder": read_json(path / CONFIG)["dsf"]["encoder"],
        "weights": "exported",
        "checkpoint": path.resolve().name,
    }
    size = None if has_own_size(encoder) else known["input_size"][-1]
    return Found(encoder, path.resolve().name, about, size, _normalisation(known))


def _normalisation(known: Mapping[str, Any]) -> dict[str, Any]:
    return {key: known[key] for key in ("mean", "std") if key in known}


def _create(name: str, options: Mapping[str, Any], pretrained: bool, seed: int) -> nn.Module:
    weights: dict[str, Any] = {}
    if pretrained:
        if not name.startswith(_LIBRARIES):
            raise ValueError(f"pretrained: only encoders of timm/ and torchvision/ are; got {name}")
        weights = {"pretrained": True} if name.startswith("timm/") else {"weights": "DEFAULT"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return create_encoder(name, **options, **weights)
        except OSError as error:
            reason = str(error).partition("\n")[0]
            raise ConnectionError(
                f"the weights of {name} are not on this machine and could not be fetched: {reason}"
            ) from error


def weights_hash(encoder: nn.Module) -> str:
    """The sha256 of all tensors with their names."""
    digest = hashlib.sha256()
    for key, value in encoder.state_dict().items():
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        flat = value.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def has_own_size(encoder: nn.Module) -> bool:
    """Whether it is a transformer, which was made for one size of images."""
    return getattr(getattr(encoder, "patch_embed", None), "img_size", None) is not None
