"""From names to what is evaluated: a run folder or an encoder, and a data set, make a subject."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dsf.data import Split, Store, load, open_store
from dsf.data.batches import room
from dsf.data.embedded import counts as embedded_counts
from dsf.data.folder import PREFIX
from dsf.data.registry import EMBEDDED, SeveralSizesError, find
from dsf.data.source import Content, content_hash
from dsf.evaluation import KNN, LabelledImages, Subject, Task
from dsf.evaluation.scores import Metric
from dsf.evaluation.subject import SMALL
from dsf.experiments import build
from dsf.experiments.nearby import run_hint
from dsf.experiments.settings import Settings
from dsf.experiments.sources import find_encoder, has_own_size, weights_hash
from dsf.methods import Method
from dsf.random import some
from dsf.training.checkpoints import Checkpoints, checksum, load_module


@dataclass(frozen=True)
class Opened:
    """A subject, and where it comes from.

    Args:
        subject: to be evaluated.
        folder: where its results are kept.
        knn: the neighbours that are meant where nobody says otherwise.
        seed: likewise.
        data: the name of its data set; empty for a run that is evaluated on its own.
        untrained: whether its weights are random.
        options: what else a named encoder was given.
    """

    subject: Subject
    folder: Path
    knn: KNN
    seed: int = 0
    data: str = ""
    untrained: bool = False
    options: str = ""


def open_run(
    folder: str | Path,
    device: str = "auto",
    data: str | None = None,
    size: int | None = None,
    random: bool = False,
    compile: bool = False,
    tests: bool = True,
) -> Opened:
    """The encoder of a run, on its own data or on another's.

    Args:
        folder: of the run.
        device: cpu, cuda or auto.
        data: another data set than the run's.
        size: of the images it sees; by default its ``data.evaluation_size``, or else the stored
            size of small images and that of its views of others.
        random: the encoder as it was before training, by the run's seed.
        compile: compile the encoder.
        tests: whether there must be test images.
    """
    if random:
        settings = run_settings(folder, device)
        method, about = build.build_method(settings), about_run(settings)
    else:
        settings, method, checkpoint = load_run(folder, device)
        about = about_run(settings, checkpoint)
    place = torch.device(settings.device)
    own = data in (None, settings.data.name)
    if own:
        task = settings_task(settings, place, tests=tests)
    else:
        assert data is not None
        task = make_task(data, None, None, place, tests=tests)
    subject = method_subject(settings, method, task, place, about, size, compile)
    neighbours = KNN(settings.knn.k, settings.knn.temperature)
    name = "" if own or data is None else data
    return Opened(subject, Path(folder), neighbours, settings.seed, name, random)


def open_encoder(
    source: str | nn.Module,
    data: str | None,
    device: str = "auto",
    size: int | None = None,
    pretrained: bool = False,
    options: Mapping[str, Any] | None = None,
    compile: bool = False,
    seed: int = 0,
    tests: bool = True,
) -> Opened:
    """An encoder by its name or its weights, or any module, on a data set.

    Args:
        source: of ``dsf.models.create_encoder``, or a checkpoint that ``dsf.models.load_foreign``
            or a folder that ``dsf.from_pretrained`` takes, or a module with the weights it has.
        data: the data set.
        device: cpu, cuda or auto.
        size: of the images it sees; by default what its library says.
        pretrained: with the weights that its library has for it; otherwise random ones.
        options: what else a named encoder takes.
        compile: compile it.
        seed: of random weights.
        tests: whether there must be test images.
    """
    name = source if isinstance(source, str) else type(source).__name__
    if data is None:
        raise ValueError(f"data: which data set should {name} be evaluated on? Give --data NAME")
    place = torch.device(choose_device(device))
    task = make_task(data, None, None, place, tests=tests)
    chosen = dict(options or {})
    found = find_encoder(source, chosen, pretrained, seed)
    if size is None:
        size = found.size
    subject = Subject(
        found.encoder,
        task,
        size=size,
        device=place,
        autocast=torch.bfloat16 if place.type == "cuda" else None,
        compile=compile,
        about={**found.about, "weights_sha256": weights_hash(found.encoder)},
        **found.normalisation,
    )
    folder = Path("runs") / found.label.replace("/", "-")
    words = " ".join(f"{key}={value}" for key, value in chosen.items())
    untrained = str(found.about["weights"]).startswith("random")
    return Opened(subject, folder, KNN(), data=data, untrained=untrained, options=words)


def method_subject(
    settings: Settings,
    method: Method,
    task: Task,
    device: torch.device,
    about: Mapping[str, Any] | None = None,
    size: int | None = None,
    compile: bool = False,
) -> Subject:
    """The encoder of a method with its projector, normalised as it was trained."""
    recipe = build.view_recipe(settings)
    size = size or settings.data.evaluation_size
    size = size or usual_size(method.encoder, task, settings.views.size)
    return Subject(
        method.encoder,
        task,
        project=method.projector,
        size=size,
        mean=recipe.mean,
        std=recipe.std,
        recipe=recipe,
        device=device,
        autocast=torch.bfloat16 if settings.precision == "bf16" else None,
        compile=compile,
        about=about,
    )


def usual_size(encoder: nn.Module, task: Task, seen: int) -> int | None:
    """The side of the images that an encoder is shown; None leaves that to a transformer.

    Args:
        encoder: trained on views.
        task: whose images they are.
        seen: the side of those views.
    """
    if has_own_size(encoder):
        return None
    return shown_size(task.train.image_size[0], task.train.squashed, seen)


def shown_size(stored: int, squashed: bool, seen: int) -> int:
    """The side of the images that a network without one of its own is shown.

    Args:
        stored: that of the stored images.
        squashed: whether they had other proportions.
        seen: that of the views it was trained on.
    """
    return stored if max(stored, seen) <= SMALL and not squashed else seen


def load_run(folder: Path | str, device: str = "auto") -> tuple[Settings, Method, Path]:
    """The settings of a run, its method as the newest whole checkpoint has it, and which that is.

    Args:
        folder: of the run.
        device: of the settings; what the run was trained on does not matter.
    """
    from dsf.experiments.run import CHECKPOINTS

    settings = run_settings(folder, device)
    loaded, passed_over = Checkpoints(Path(folder) / CHECKPOINTS).newest()
    if loaded is None:
        reason = f" ({passed_over[0]})" if passed_over else ""
        raise FileNotFoundError(f"{folder} has no whole checkpoint yet{reason}")
    method = build.build_method(settings)
    load_module(method, loaded)
    return settings, method.to(settings.device), loaded.path


def run_settings(folder: str | Path, device: str = "auto") -> Settings:
    """The settings of a run, for evaluation on this machine."""
    from dsf.experiments.recipe import load_recipe
    from dsf.experiments.run import CONFIG

    config = Path(folder) / CONFIG
    if not config.is_file():
        if not Path(folder).exists():
            raise FileNotFoundError(
                f"{folder} is not a run: there is no such folder{run_hint(folder)}"
            )
        raise FileNotFoundError(f"{folder} is not a run: it has no {CONFIG}{run_hint(folder)}")
    changes = [f"device={device}", "compile=false", "graph=false"]
    if load_recipe(str(config)).data.resident is True:
        changes.append("data.resident=auto")  # here there may be less memory
    settings = build.resolve(load_recipe(str(config), changes))
    if settings.device == "cpu" and settings.precision == "bf16":  # slower there, and coarser
        settings = build.resolve(load_recipe(str(config), [*changes, "precision=fp32"]))
    return settings


def settings_task(
    settings: Settings,
    device: torch.device,
    images: Mapping[str, torch.Tensor] | None = None,
    tests: bool = True,
) -> Task:
    """What a run is evaluated on: its own data, and of these as many as it was trained on."""
    data = settings.data
    resident = None if data.resident == "auto" else data.resident
    return make_task(data.name, data.size, data.limit, device, resident, images, tests)


def make_task(
    name: str,
    size: int | None,
    limit: int | None,
    device: torch.device,
    resident: bool | None = None,
    held: Mapping[str, torch.Tensor] | None = None,
    tests: bool = True,
) -> Task:
    """The labelled splits of a prepared data set; official validation images join the training.

    Args:
        name: of the data set; NAME:SIZE says which store where there are several.
        size: the same.
        limit: only so many training images, by chance but always the same.
        device: where evaluations compute.
        resident: keep images there; by default if they take at most half of the free memory.
        held: the images of splits that lie there already, which need not be loaded again.
        tests: whether there must be a test split.
    """
    if size is None:
        name, size = _named_size(name)
    splits = _splits(name, size, tests)
    if resident is None:
        resident = sum(split.nbytes for split in splits.values()) <= room(device)
    parts = {}
    for key, split in splits.items():
        rows, whose = None, f"{name}, split {key}"
        if limit is not None and key == "train" and limit < len(split):
            rows = some(len(split), limit)
            whose = f"{name}, {limit:,} of the {len(split):,} images of split {key}"
        images: Split | torch.Tensor | None = (held or {}).get(key)
        if images is None:
            images = split.images(device) if resident else split
        labels, sizes = split.labels(device), split.sizes(device)
        parts[key] = LabelledImages(images, labels, sizes, rows, whose)
    metric: Metric = "top-1"
    if name != EMBEDDED:
        metric = getattr(find(name, size), "metric", metric)
    about: dict[str, Any] = {
        "name": name,
        "metric": metric,
        "content": _content(name, size, splits),
    }
    if limit is not None:
        about["limit"] = limit
    train, validation = parts["train"], None
    if "validation" in parts:
        count = len(train)
        train = train.joined(parts["validation"])
        validation = torch.arange(count, len(train))
        about["validation_samples"] = len(validation)
    return Task(
        train,
        parts.get("test"),
        len(splits["train"].classes),
        validation,
        metric,
        splits["train"].classes,
        about,
    )


def check_prepared(data: str) -> None:
    """Raise ``FileNotFoundError`` unless a data set, NAME or NAME:SIZE, can be loaded."""
    name, size = _named_size(data)
    if name != EMBEDDED:
        _store(name, size)


def _store(name: str, size: int | None) -> Store:
    try:
        return open_store(name, size)
    except SeveralSizesError as error:
        raise ValueError(error.explain(f"--data {name}:{error.newest}")) from None


def _named_size(name: str) -> tuple[str, int | None]:
    head, _, tail = name.rpartition(":")
    if tail.isdecimal() and head and f"{head}:" != PREFIX:
        return head, int(tail)
    return name, None


def _splits(name: str, size: int | None, tests: bool) -> dict[str, Split]:
    counts = embedded_counts() if name == EMBEDDED else _store(name, size).counts
    needed = ("train", "test") if tests else ("train",)
    if missing := [key for key in needed if key not in counts]:
        raise ValueError(
            f"data: evaluation needs the splits {' and '.join(needed)}; {name} has "
            f"{', '.join(counts)} and no {missing[0]}{_remedy(name, missing[0])}"
        )
    wanted = [key for key in ("train", "test", "validation") if key in counts]
    splits: dict[str, Split] = {key: load(name, key, size) for key in wanted}
    for key, split in splits.items():
        if not split.labelled:
            raise ValueError(f"data: evaluation needs labels; split {key} of {name} has none")
        if len(split.classes) < 2:
            raise ValueError(
                f"data: evaluation needs two classes or more; {name} has {split.classes[0]!r} alone"
            )
    return splits


def how_to_split(name: str) -> str:
    """How a folder of images gets labels and test images; empty for another data set."""
    if not name.startswith(PREFIX):
        return ""
    place = name.removeprefix(PREFIX)
    return f"put images into {place}/train/CLASS and {place}/test/CLASS and prepare it again"


def _remedy(name: str, missing: str) -> str:
    """What to do about a split that is missing."""
    ways = [way] if (way := how_to_split(name)) else []
    if missing == "test":
        ways.append("take knn --leave-one-out, which uses training images only")
    return f": {', or '.join(ways)}" if ways else ""


def _content(name: str, size: int | None, splits: Mapping[str, Split]) -> dict[str, dict[str, str]]:
    """The hashes of what is evaluated on."""
    found: Mapping[str, Content]
    if name == EMBEDDED:
        arrays = {
            key: (split.images().permute(0, 2, 3, 1).numpy(), split.labels().numpy())
            for key, split in splits.items()
        }
        found = {key: content_hash(*pair) for key, pair in arrays.items()}
    else:
        found = open_store(name, size).content
    return {key: found[key]._asdict() for key in splits}


def about_run(settings: Settings, checkpoint: Path | None = None) -> dict[str, Any]:
    """What protocols say of a run's encoder, trained up to a checkpoint or not at all."""
    about: dict[str, Any] = {
        "encoder": settings.encoder.model_dump(),
        "weights": f"random, seed {settings.seed}" if checkpoint is None else "trained",
        "checkpoint": None if checkpoint is None else checkpoint.name,
    }
    if checkpoint is not None:
        about["checkpoint_sha256"] = checksum(checkpoint)
    return about


def choose_device(device: str) -> str:
    """cpu or cuda, of which auto is the one that there is."""
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be one of auto, cpu, cuda; got {device!r}")
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ValueError("device: there is no CUDA device here; got 'cuda', take auto or cpu")
    return ("cuda" if available else "cpu") if device == "auto" else device
