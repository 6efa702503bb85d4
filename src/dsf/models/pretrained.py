"""Encoders that were exported: a folder, here or on the Hugging Face Hub, to a module."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dsf.files import read_json, sha256
from dsf.models.encoders import create_encoder

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# Where there are several files of weights, as the Hub names them.
INDEX, PARTS = "model.safetensors.index.json", "model-*.safetensors"
# What config.json calls the part that is ours, and the version of it.
SECTION, FORMAT = "dsf", 1
# With these a library would fetch other weights than the folder's.
FETCHING = (
    "cache_dir",
    "checkpoint_path",
    "pretrained",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "progress",
    "weights",
)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def from_pretrained(source: str | Path, *, revision: str | None = None) -> nn.Module:
    """An encoder that ``dsf export`` wrote: (B, 3, H, W) normalised images to (B, F) features.

    Its ``pretrained_cfg`` says how images are prepared (``input_size``, ``mean`` and ``std``), and
    ``num_features`` is F. It is in evaluation mode. Only JSON and safetensors are read, so that
    nothing in the folder is executed. Weights that are kept in half precision or in several files
    become one encoder in single precision.

    Args:
        source: a folder, or ``user/name`` on the Hub.
        revision: a branch, tag or commit there.
    """
    folder = _folder(source, revision)
    section = _section(folder)
    paths = _files(folder, section.get("files", {}))
    encoder = create_encoder(section["encoder"]["name"], **section["encoder"]["options"])
    _fill(encoder, paths)
    side = section["image_size"]
    encoder.pretrained_cfg = {  # type: ignore[assignment]
        "input_size": (3, side, side),
        "mean": tuple(section["mean"]),
        "std": tuple(section["std"]),
        "num_classes": 0,
    }
    return encoder.eval()


def is_exported(folder: Path) -> bool:
    """Whether a folder holds an encoder that ``from_pretrained`` reads."""
    try:
        return SECTION in read_json(folder / CONFIG)
    except (OSError, ValueError):
        return False


def _folder(source: str | Path, revision: str | None) -> Path:
    path = Path(source)
    if path.is_dir():
        if revision is not None:
            raise ValueError(f"revision: {source} is a folder, which has only one; got {revision}")
        return path
    if not isinstance(source, str) or not _HUB_NAME.fullmatch(source):
        raise FileNotFoundError(f"{source} is neither a folder nor user/name on the Hub")
    import huggingface_hub

    try:
        found = huggingface_hub.snapshot_download(
            source, revision=revision, allow_patterns=[CONFIG, WEIGHTS, INDEX, PARTS]
        )
    except Exception as error:  # its errors have no ancestor of their own
        reason = str(error).strip().splitlines()[0]
        raise ConnectionError(
            f"{source} is no folder here, and the Hub did not give it: {reason}"
        ) from error
    return Path(found)


def _section(folder: Path) -> dict[str, Any]:
    """What config.json says of the encoder."""
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} holds no exported encoder: it has no {CONFIG}")
    section = read_json(folder / CONFIG).get(SECTION)
    if not isinstance(section, dict):
        raise ValueError(f"{folder / CONFIG} was not written by dsf: it has no {SECTION!r}")
    if section.get("format") != FORMAT:
        raise ValueError(
            f"{folder / CONFIG}: {SECTION}.format must be {FORMAT}; got {section.get('format')!r}. "
            "Use the version of dsf that wrote it"
        )
    try:
        name, options = section["encoder"]["name"], section["encoder"]["options"]
        whole = isinstance(name, str) and isinstance(options, dict)
        whole = whole and isinstance(section["image_size"], int)
        whole = whole and len(section["mean"]) == len(section["std"]) == 3
        whole = whole and all(
            isinstance(value, int | float) for value in (*section["mean"], *section["std"])
        )
    except (KeyError, TypeError):
        whole = False
    if not whole:
        raise ValueError(
            f"{folder / CONFIG}: {SECTION} must have an encoder with name and options, "
            "image_size, mean and std"
        )
    if not isinstance(section.get("files", {}), dict):
        raise ValueError(
            f"{folder / CONFIG}: {SECTION}.files must hold checksums by the names of files; "
            f"got {section['files']!r}"
        )
    fetching = [option for option in FETCHING if option in options]
    if fetching:
        raise ValueError(f"{folder / CONFIG}: the encoder must not take the option {fetching[0]!r}")
    if ":" in name:
        raise ValueError(f"{folder / CONFIG}: the encoder must not be fetched; got {name!r}")
    return section


def _files(folder: Path, checksums: Mapping[str, str]) -> list[Path]:
    """The files of the weights, whole as far as their checksums are known."""
    names = {WEIGHTS}
    if not (folder / WEIGHTS).is_file():
        if not (folder / INDEX).is_file():
            raise FileNotFoundError(f"{folder} holds no exported encoder: it has no {WEIGHTS}")
        places = read_json(folder / INDEX).get("weight_map")
        names = set(map(str, places.values())) if isinstance(places, dict) else set()
    if not names:
        raise ValueError(
            f"{folder / INDEX} names no files: weight_map is missing, empty or no mapping"
        )
    for name in sorted(names):
        if Path(name).name != name:
            raise ValueError(f"{folder / INDEX} must name files of its own folder; got {name!r}")
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} lacks {name}, a part of its weights")
        if name in checksums and sha256(folder / name) != checksums[name]:
            raise ValueError(f"{folder / name} is damaged: its checksum is not that in {CONFIG}")
    return [folder / name for name in sorted(names)]


@torch.no_grad()
def _fill(encoder: nn.Module, paths: list[Path]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in paths:
        try:
            tensors |= load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
    try:
        encoder.load_state_dict(tensors)  # copied, into single precision
    except RuntimeError as error:
        where = paths[0] if len(paths) == 1 else paths[0].parent / INDEX
        raise ValueError(f"{where} does not belong to its {CONFIG}: {error}") from None
