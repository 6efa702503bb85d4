"""The encoder of a run in half precision, in files small enough to be kept beside its result."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from dsf.data.files import read_json, sha256, write_file, write_json
from dsf.evaluation import KNN, Subject
from dsf.experiments import build
from dsf.experiments.subjects import (
    Opened,
    about_run,
    choose_device,
    load_run,
    make_task,
    usual_size,
)
from dsf.models import create_encoder

FORMAT = 1
ABOUT = "encoder.json"
_PART = 15 << 20  # bytes of tensors a file


def export_weights(run: Path, folder: Path) -> list[Path]:
    """Write the encoder of a run.

    Weights of two and more dimensions become float16. The others stay as they are: they take no
    room, and the variances of BatchNorm span more than half precision does.

    Args:
        run: its folder, with a checkpoint.
        folder: where to; safetensors files and a JSON file that says what they are.

    Returns:
        The paths, the JSON file first.
    """
    settings, method, checkpoint = load_run(run, "cpu")
    recipe = build.view_recipe(settings)
    tensors = {
        name: (value.half() if value.dim() > 1 else value).contiguous()
        for name, value in method.encoder.state_dict().items()
    }
    parts: list[dict[str, Tensor]] = [{}]
    for name, value in tensors.items():
        if parts[-1] and _size(parts[-1]) + value.nbytes > _PART:
            parts.append({})
        parts[-1][name] = value
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for number, part in enumerate(parts, 1):
        path = folder / f"encoder-{number}-of-{len(parts)}.safetensors"
        written[path.name] = write_file(path, save(part))
    about: dict[str, Any] = {
        "format": FORMAT,
        **about_run(settings, checkpoint),
        "image_size": settings.views.size,
        "mean": recipe.mean,
        "std": recipe.std,
        "files": written,
    }
    write_json(folder / ABOUT, about)
    return [folder / ABOUT, *(folder / name for name in written)]


def load_weights(folder: Path | str) -> nn.Module:
    """The encoder that ``export_weights`` wrote, in single precision and evaluation mode.

    It maps images (N, 3, H, W), normalised by the ``mean`` and ``std`` of its JSON file, to
    features.
    """
    folder = Path(folder)
    about = read_json(folder / ABOUT)
    if about.get("format") != FORMAT:
        raise ValueError(f"{folder / ABOUT}: format must be {FORMAT}; got {about.get('format')!r}")
    tensors: dict[str, Tensor] = {}
    for name, expected in about["files"].items():
        if sha256(folder / name) != expected:
            raise ValueError(f"{folder / name} is damaged: its checksum is not that in {ABOUT}")
        tensors |= load((folder / name).read_bytes())
    encoder = create_encoder(about["encoder"]["name"], **about["encoder"]["options"])
    encoder.load_state_dict(tensors)  # copies into tensors of single precision
    return encoder.eval()


def open_weights(folder: Path | str, data: str, device: str = "auto", seed: int = 0) -> Opened:
    """The encoder that ``export_weights`` wrote, to be evaluated on a data set as its run is.

    Args:
        folder: of the files.
        data: NAME or NAME:SIZE.
        device: cpu, cuda or auto.
        seed: of all that is random; that of the run gives what the run would.
    """
    folder = Path(folder)
    about = read_json(folder / ABOUT)
    encoder = load_weights(folder)
    place = torch.device(choose_device(device))
    task = make_task(data, None, None, place)
    names = ("encoder", "weights", "checkpoint", "checkpoint_sha256")
    subject = Subject(
        encoder,
        task,
        size=usual_size(encoder, task, about["image_size"]),
        mean=about["mean"],
        std=about["std"],
        device=place,
        autocast=torch.bfloat16 if place.type == "cuda" else None,
        about={name: about.get(name) for name in names} | {"kept_in": "float16"},
    )
    return Opened(subject, folder, KNN(), seed, data)


def _size(tensors: dict[str, Tensor]) -> int:
    return sum(value.nbytes for value in tensors.values())
