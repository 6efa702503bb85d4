"""Pictures of runs for pages: their views, and what their encoders make of images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from dsf.data import Batch
from dsf.data.sheet import view_sheet
from dsf.evaluation import LabelledImages, Subject, Task
from dsf.experiments import build
from dsf.experiments.page import Gallery, Pictures, Seen, Sheet, look
from dsf.experiments.page.features import first_of_each_class
from dsf.experiments.run import trained_on
from dsf.experiments.settings import Settings
from dsf.experiments.subjects import (
    choose_device,
    load_run,
    make_task,
    method_subject,
    run_settings,
)
from dsf.random import some
from dsf.training.numerics import Precision, numerics

ROWS, VIEWS = 6, 8  # of a sheet of views
TRAIN, TEST = 5000, 1000  # images that are looked at, so that a CPU can do it
_NEIGHBOURS = 5
_SIDE = 96  # pixels of a picture of a neighbour
_SKIPPED = "Left out, as asked for."


class _Encoder(NamedTuple):
    """One that is looked at, and on which data."""

    name: str
    data: str
    subject: Subject


def look_at_runs(
    folders: Mapping[str, Path],
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> Pictures:
    """What there is to see of runs: views where their data are found, features where their weights
    are too. Why something is missing is said in the result.

    Of one run the untrained encoder is looked at too; of several, the trained ones are compared.

    Args:
        folders: of the runs, by label.
        device: cpu, cuda or auto.
        say: told what happens next.
    """
    device = choose_device(device)
    sheets: dict[tuple[str, str], Sheet] = {}
    classes: dict[str, tuple[str, ...]] = {}
    no_views: dict[str, str] = {}
    no_features: dict[str, str] = {}
    changed: dict[str, str] = {}
    encoders: list[_Encoder] = []
    for label, folder in folders.items():
        try:
            settings = run_settings(folder, device)
            split = build.load_split(settings, settings.data.split)
        except (OSError, ValueError) as error:
            no_views[label] = no_features[label] = _reason(error)
            continue
        classes[label] = tuple(split.classes)
        learned = trained_on(folder)
        if None not in (learned, split.sha256) and learned != split.sha256:
            changed[label] = (
                f"{settings.data.name} has changed since it was learned from: these are its images "
                "as they are now."
            )
        key = (settings.data.model_dump_json(), settings.views.model_dump_json())
        if key in sheets:
            sheets[key] = replace(sheets[key], runs=(*sheets[key].runs, label))
        else:
            sheets[key] = replace(view_picture(settings), runs=(label,))
        try:
            encoders += _encoders(label, folder, settings, alone=len(folders) == 1)
        except (OSError, ValueError) as error:
            no_features[label] = _reason(error)
    galleries = _galleries(encoders, say)
    return Pictures(tuple(sheets.values()), galleries, classes, no_views, no_features, changed)


def left_out(labels: Sequence[str]) -> Pictures:
    """No pictures, since nobody wanted any."""
    reasons = dict.fromkeys(labels, _SKIPPED)
    return Pictures(no_views=reasons, no_features=reasons)


def view_picture(settings: Settings) -> Sheet:
    """A sheet of training images and their views."""
    split = build.load_split(settings, settings.data.split)
    views, rows = settings.views, min(ROWS, len(split))
    picture = view_sheet(
        split, rows, VIEWS, views.recipes(), views.size, settings.seed, views.exact
    )
    return Sheet(picture, VIEWS)


def make_gallery(data: str, encoders: Sequence[tuple[str, Subject]]) -> Gallery:
    """What encoders make of the same images: of training images where there are no test images.

    Args:
        data: the name of the data set.
        encoders: by name, all with the same task.
    """
    task = encoders[0][1].task
    own = some(len(task.train), TEST) if task.test is None else None
    shown = task.tested() if own is None else task.train.part(own)
    labels = shown.labels.cpu()
    queries = first_of_each_class(labels)
    neighbours = min(_NEIGHBOURS, len(task.train) - (own is not None))
    seen = []
    for name, subject in encoders:
        precision: Precision = "fp32" if subject.autocast is None else "bf16"
        with numerics(precision, deterministic=False, autotune=False):
            train = subject.features("train")
            test = subject.features("test").backbone if own is None else train.backbone[own]
        found = look(train.backbone, train.labels, test, labels, queries, neighbours, own)
        rows = found.neighbours.flatten()
        images = _pictures(task.train, rows).unflatten(0, found.neighbours.shape)
        seen.append(Seen(name, found, images, task.train.labels.cpu()[found.neighbours]))
    return Gallery(
        data,
        tuple(task.names) or tuple(str(number) for number in range(task.classes)),
        _pictures(shown, queries),
        labels[queries],
        labels,
        tuple(seen),
        tests=own is None,
    )


def _encoders(label: str, folder: Path, settings: Settings, alone: bool) -> list[_Encoder]:
    device = torch.device(settings.device)
    _, trained, _ = load_run(folder, settings.device)
    name, data = settings.data.name, settings.data
    # Streamed: of many runs' data sets all would lie in memory at once, for a few images each.
    task = _limited(make_task(name, data.size, data.limit, device, resident=False, tests=False))
    after = method_subject(settings, trained, task, device)
    if not alone:
        return [_Encoder(label, name, after)]
    untrained = build.build_method(settings).to(device)
    before = method_subject(settings, untrained, task, device)
    return [_Encoder("before training", name, before), _Encoder("after training", name, after)]


def _limited(task: Task) -> Task:
    """So many images that a CPU can look at them, the same for every run."""
    test = None if task.test is None else _some(task.test, TEST)
    return replace(task, train=_some(task.train, TRAIN), test=test, validation=None)


def _some(images: LabelledImages, limit: int) -> LabelledImages:
    if len(images) <= limit:
        return images
    return images.part(some(len(images), limit).to(images.labels.device))


def _galleries(encoders: Sequence[_Encoder], say: Callable[[str], None]) -> tuple[Gallery, ...]:
    """One for each data set, in the order in which they first appear."""
    groups: dict[tuple[object, ...], list[_Encoder]] = {}
    for encoder in encoders:
        task = encoder.subject.task
        counts = (len(task.train), None if task.test is None else len(task.test))
        key = (encoder.data, *counts, task.train.image_size, task.names)
        groups.setdefault(key, []).append(encoder)
    result = []
    for group in groups.values():
        names = ", ".join(encoder.name for encoder in group)
        say(f"looking at the features of {group[0].data}: {names}")
        result.append(
            make_gallery(group[0].data, [(encoder.name, encoder.subject) for encoder in group])
        )
    return tuple(result)


def _pictures(images: LabelledImages, rows: Tensor) -> Tensor:
    """(n, 3, H, W) in uint8 on the CPU, no larger than they are shown."""
    cpu = torch.device("cpu")
    batches: list[Batch] = list(images.batches([rows.to(images.labels.device)], cpu))
    pixels = torch.cat([batch.images for batch in batches])
    if max(pixels.shape[-2:]) <= _SIDE:
        return pixels
    small = interpolate(pixels.float(), (_SIDE, _SIDE), mode="bicubic", antialias=True)
    return small.round().clamp(0, 255).to(torch.uint8)


def _reason(error: Exception) -> str:
    text = str(error)
    return f"Left out: {text}" if text.endswith((".", "?", "!")) else f"Left out: {text}."
