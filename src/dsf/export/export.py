"""A run's encoder into a folder that another library loads."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dsf.experiments.exported import read_source
from dsf.experiments.page import read_run
from dsf.experiments.unfinished import unfinished_note
from dsf.export.card import model_card
from dsf.export.check import check
from dsf.export.push import log_in, push
from dsf.export.target import Target
from dsf.export.to_huggingface import HuggingFace
from dsf.export.to_onnx import ONNX
from dsf.export.to_timm import Timm
from dsf.export.to_torchvision import Torchvision
from dsf.files import TEMPORARY, sync_folder, write_file

CARD = "README.md"
TARGETS: dict[str, Target] = {
    target.name: target for target in (Timm(), Torchvision(), HuggingFace(), ONNX())
}


class Exported(NamedTuple):
    """What an export leaves: the folder, and how far its features are from the run's at most."""

    folder: Path
    difference: float


def export_run(
    run: Path | str,
    to: str,
    folder: Path | str | None = None,
    *,
    push_to: str | None = None,
    private: bool = False,
    say: Callable[[str], None] = lambda text: None,
    begin: Callable[[], None] = lambda: None,
) -> Exported:
    """Export a run's encoder; the folder is there only if what it holds was loaded and compared.

    Weights are written as safetensors (or as one ONNX file), with a model card that tells how to
    load them, what the run reached and where it comes from. The code of the card is run, and what
    it loads must give the features of the run's encoder.

    Args:
        run: its folder.
        to: one of ``TARGETS``.
        folder: a new or an empty one; by default ``exports/TO`` in the run's.
        push_to: ``user/name`` on the Hugging Face Hub, to upload it to.
        private: there, for its owner only.
        say: told what happens next.
        begin: called once all that was asked for is found to be right, before features are
            compared.
    """
    if to not in TARGETS:
        raise ValueError(f"to must be one of {', '.join(TARGETS)}; got {to!r}")
    target, run = TARGETS[to], Path(run)
    place = run / "exports" / to if folder is None else Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise FileExistsError(f"{place} is there and not an empty folder: take another with -o")
    hub = log_in(push_to) if push_to else None  # before the work, which would be for nothing
    source = read_source(run)
    if source.unfinished and (note := unfinished_note(read_run(run), source.checkpoint)):
        say(note)
    aside = place.with_name(place.name + TEMPORARY)
    _make(aside)
    try:
        target.write(source, aside)
        begin()
        say(f"comparing features with {source.checkpoint}")
        difference = check(source, target.loadings(source, str(aside)))
        write_file(aside / CARD, model_card(source, target, push_to).encode())
        os.replace(aside, place)
        sync_folder(place.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    say(f"how to load it: {place / CARD}")
    if push_to:
        say(f"uploading to {push_to}")
        push(hub, place, push_to, private)
    return Exported(place, difference)


def _make(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)  # of an export that was killed
        folder.mkdir()
    except OSError as error:
        raise OSError(error.errno, f"cannot write to {folder.parent}: {error.strerror}") from error
