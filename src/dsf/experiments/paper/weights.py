"""The encoder of a run in half precision, in files small enough to be kept beside its result."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from dsf.evaluation import KNN, Subject
from dsf.experiments.exported import read_source
from dsf.experiments.paper.folder import checksum, is_trained
from dsf.experiments.paper.outcome import Outcome
from dsf.experiments.subjects import Opened, choose_device, make_task, usual_size
from dsf.files import read_json, write_file, write_json
from dsf.models import from_pretrained
from dsf.models.pretrained import CONFIG, INDEX, PARTS, SECTION

_PART = 15 << 20  # bytes of tensors a file


def export_weights(run: Path, folder: Path) -> list[Path]:
    """Write the encoder of a run for ``dsf.from_pretrained``.

    Weights of two and more dimensions become float16. The others stay as they are: they take no
    room, and the variances of BatchNorm span more than half precision does.

    Args:
        run: its folder, with a checkpoint.
        folder: where to; safetensors files, and JSON files that say what they are.

    Returns:
        The paths, config.json first.
    """
    source = read_source(run)
    tensors = {
        name: (value.half() if value.dim() > 1 else value).contiguous()
        for name, value in source.encoder.state_dict().items()
    }
    parts: list[dict[str, Tensor]] = [{}]
    for name, value in tensors.items():
        if parts[-1] and _size(parts[-1]) + value.nbytes > _PART:
            parts.append({})
        parts[-1][name] = value
    folder.mkdir(parents=True, exist_ok=True)
    checksums: dict[str, str] = {}
    places: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        path = folder / PARTS.replace("*", f"{number:05}-of-{len(parts):05}")
        checksums[path.name] = write_file(path, save(part))
        places |= dict.fromkeys(part, path.name)
    index = {"metadata": {"total_size": _size(tensors)}, "weight_map": places}
    write_json(folder / INDEX, index)
    own = {
        "checkpoint": source.checkpoint,
        "views_size": source.settings.views.size,
        "kept_in": "float16",
        "files": checksums,
    }
    write_json(folder / CONFIG, {SECTION: source.section() | own})
    return [folder / name for name in (CONFIG, INDEX, *checksums)]


def find_encoder(of: str, trained: Outcome, runs: Path, weights: Path | None) -> Path | None:
    """The folder of a run that was trained, or of its exported encoder; None without either.

    Args:
        of: the run.
        trained: its result: an encoder with another checksum is not that of this run, but of a
            trial, or of another machine's training, whose numbers would stand beside the run's.
        runs: where the run folders lie.
        weights: where exported encoders lie.
    """
    known = trained.checkpoints  # none where nothing was evaluated
    if is_trained(runs / of) and (not known or checksum(runs / of) in known):
        return runs / of
    if weights is None or not (weights / of / CONFIG).is_file():
        return None
    own = _about(weights / of).get("checkpoint_sha256")
    return weights / of if own in known else None


def no_encoder(of: str, runs: Path) -> str:
    """Why ``find_encoder`` found nothing, in words that "and with it the encoder" may follow."""
    if is_trained(runs / of):
        return f"{runs / of} holds another training than the one of its result, which is gone"
    return f"{runs / of} is gone"


def open_weights(
    folder: Path, data: str, device: str = "auto", seed: int = 0, limit: int | None = None
) -> Opened:
    """The encoder that ``export_weights`` wrote, to be evaluated on a data set as its run is.

    Args:
        folder: of the files.
        data: NAME or NAME:SIZE.
        device: cpu, cuda or auto.
        seed: of all that is random; that of the run gives what the run would.
        limit: only so many training images, by chance but always the same.
    """
    about = _about(folder)
    encoder = from_pretrained(folder)
    place = torch.device(choose_device(device))
    task = make_task(data, None, limit, place)
    names = ("encoder", "checkpoint", "checkpoint_sha256", "kept_in")
    subject = Subject(
        encoder,
        task,
        size=usual_size(encoder, task, about["views_size"]),
        mean=about["mean"],
        std=about["std"],
        device=place,
        autocast=torch.bfloat16 if place.type == "cuda" else None,
        about={"weights": "trained", **{name: about.get(name) for name in names}},
    )
    return Opened(subject, folder, KNN(), seed, data)


def _about(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(folder / CONFIG).get(SECTION, {})
    return found


def _size(tensors: dict[str, Tensor]) -> int:
    return sum(value.nbytes for value in tensors.values())
