"""A run: from settings to a folder that holds everything about it."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from dsf import distributed
from dsf.data import Split
from dsf.experiments import build
from dsf.experiments.monitor import KNNMonitor
from dsf.experiments.notes import notes
from dsf.experiments.recipe import dump, load_recipe
from dsf.experiments.settings import AUTO, Settings, check_batch
from dsf.files import alone, locked, read_json, write_file, write_json
from dsf.training import Callback, Checkpoints, Loop, MetricsFile, Plan
from dsf.training.checkpoints import Loaded
from dsf.training.display import display
from dsf.training.environment import environment
from dsf.training.loggers import TensorBoard, WeightsAndBiases
from dsf.training.numerics import numerics

CONFIG, METRICS, RESULTS, ENVIRONMENT = (
    "config.yaml",
    "metrics.jsonl",
    "results.json",
    "environment.json",
)
CHECKPOINTS = "checkpoints"
LOCK = ".lock"
# What may differ when a run is resumed: it changes no number.
_FREE = ("checkpoint", "tensorboard", "wandb", "data.resident", "graph")


def train(
    settings: Settings,
    folder: Path | str,
    resume: bool = False,
    show: bool = True,
    begin: Callable[[], None] = lambda: None,
) -> Path:
    """Train as the settings say, on one device or, under torchrun, on many.

    Args:
        settings: of a recipe; what is "auto" is decided here.
        folder: of the run.
        resume: go on from the newest whole checkpoint, or from the start if there is none. A
            process that torchrun has restarted always does.
        show: a bar or lines on the standard error.
        begin: called once all that was asked for is found to be right, before the first step.

    Returns:
        The folder.
    """
    folder = Path(folder)
    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
    if resume:
        settings = _without_graph(settings)
    check_batch(settings, distributed.launched()[1])
    split = build.load_split(settings, settings.data.split)
    wanted = build.resolve(settings, split)
    settings = watched(wanted)
    build.check_local_views(settings)
    device = distributed.start(settings.device)
    try:
        # One for all: after a restart torchrun counts on each machine for itself.
        [resume] = distributed.agree(resume, device=device)
        if distributed.rank() == 0:
            _check_free(folder, settings, resume)
        distributed.wait(device)
        with (
            numerics(settings.precision, settings.deterministic, settings.autotune is True),  # type: ignore[arg-type]
            ExitStack() as until_done,
        ):
            loop = _make_loop(settings, split, folder, device)
            if distributed.rank() == 0:
                # Not before all is built: what cannot be built leaves no run behind.
                _make(folder)
                until_done.enter_context(_alone(folder))
                _check_free(folder, settings, resume)  # while all was built another may have come
                if not (folder / CONFIG).is_file():
                    write_file(folder / CONFIG, dump(settings).encode())
            _start(loop, settings, split, folder, resume, show)
            if settings != wanted:
                loop.say(
                    "note: no kNN on the way, which takes labelled splits train and test of two "
                    "classes or more"
                )
            if loop.step == 0 and distributed.rank() == 0:
                for note in notes(settings, split):
                    loop.say(f"note: {note}")
            if settings.compile and loop.step < loop.steps:
                loop.say("compiling: the first step may take a minute or two")
            begin()
            loop.run()
        if distributed.rank() == 0:
            write_results(folder, {"training": _cost(loop, settings)})
    except RuntimeError as error:
        if not distributed.lost_another(error):
            raise
        raise ConnectionError(
            f"lost another process of this run: {str(error).splitlines()[0]}. What is in "
            f"{folder / CHECKPOINTS} is whole: start all of them again with --resume"
        ) from error
    finally:
        distributed.stop()
    return folder


def labelled(settings: Settings, splits: Sequence[str] = ("train", "test")) -> bool:
    """Whether splits are there and have labels of more than one class, as evaluations take them."""
    try:
        found = [build.load_split(settings, name) for name in splits]
    except ValueError:
        return False
    return all(split.labelled and len(split.classes) > 1 for split in found)


def watched(settings: Settings) -> Settings:
    """The same without the monitor where there is nothing to evaluate on."""
    if settings.knn.every == 0 or labelled(settings):
        return settings
    return settings.model_copy(update={"knn": settings.knn.model_copy(update={"every": 0})})


def _without_graph(settings: Settings) -> Settings:
    """The same where several processes go on with what one began: they cannot record a graph."""
    if settings.graph is not True or distributed.launched()[1] == 1:
        return settings
    return settings.model_copy(update={"graph": AUTO})


def _make_loop(settings: Settings, split: Any, folder: Path, device: torch.device) -> Loop:
    batches = build.build_batches(settings, split, device)
    steps = settings.epochs * len(batches)
    method = build.place(build.build_method(settings, steps), settings, device)
    torch.manual_seed(settings.seed + distributed.rank())  # for layers that draw by themselves
    plan = Plan(
        settings.epochs,
        settings.views.total,
        settings.accumulate,
        settings.precision,  # type: ignore[arg-type]
        settings.graph is True,
        settings.log_every,
        settings.checkpoint.minutes,
        settings.checkpoint.steps,
    )
    writes = distributed.rank() == 0
    return Loop(
        method,
        batches,
        build.build_views(settings, device),
        build.build_optimiser(settings, method),
        build.build_schedule(settings, len(batches)),
        plan,
        Checkpoints(folder / CHECKPOINTS, settings.checkpoint.keep),
        (lambda step: MetricsFile(folder / METRICS, step)) if writes else None,
    )


def _start(
    loop: Loop, settings: Settings, split: Split, folder: Path, resume: bool, show: bool
) -> None:
    """Load the newest checkpoint where asked, and add the callbacks."""
    loaded, passed_over = loop.checkpoints.newest() if resume else (None, [])
    _check_same(loaded, loop)
    if loaded is not None:
        if trained_on(folder) not in (None, split.sha256):
            raise ValueError(
                f"data: {settings.data.name} has changed since {folder} began to learn from it: "
                "start another run with -o"
            )
        loop.load(loaded)
    if distributed.rank() > 0:
        return
    callbacks: list[Callback] = []
    if show:
        callbacks.append(display(settings.epochs, loop.steps, loop.step))
    if settings.knn.every:
        images = loop.batches.images
        callbacks.append(KNNMonitor(settings, loop.method, loop.device, images))
    if settings.tensorboard:
        callbacks.append(TensorBoard(folder / "tensorboard", loop.step))
    if settings.wandb:
        callbacks.append(WeightsAndBiases(settings.wandb, folder, settings.model_dump()))
    loop.callbacks = callbacks
    for problem in passed_over:
        loop.say(f"passed over: {problem}")
    if loaded is not None:
        complete = ": it is complete, nothing is left to train" if loop.step == loop.steps else ""
        loop.say(f"resumed from {loaded.path}{complete}")
    elif resume:
        loop.say("no checkpoint yet: starting from the beginning")
    _write_environment(folder, loop, split)


def _check_same(loaded: Loaded | None, loop: Loop) -> None:
    """Raise ``ValueError`` in all processes where they have not read the same checkpoint."""
    mine = (-1, 0)
    if loaded is not None:
        mine = loaded.state["step"], int(loaded.state["tensors"]["sha256"][:15], 16)
    read = distributed.gather(torch.tensor([mine], device=loop.device)).tolist()
    if any(other != read[0] for other in read):
        steps = ", ".join("none" if step < 0 else f"step {step}" for step, _ in read)
        raise ValueError(
            f"{loop.checkpoints.folder}: the processes read different checkpoints ({steps}): the "
            "run folder must lie on a disk that all of them see"
        )


def _check_free(folder: Path, settings: Settings, resume: bool) -> None:
    """See that the folder is free, or that the run in it is the one to resume."""
    config = folder / CONFIG
    if config.is_file():
        if not resume:
            raise FileExistsError(
                f"{folder} holds a run already: --resume goes on with it, -o takes another folder"
            )
        _compare(config, settings)
        if (folder / RESULTS).is_file():
            read_json(folder / RESULTS)  # to a damaged file nothing could be added at the end
        return
    if not resume and folder.is_dir() and any(path.name != LOCK for path in folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty and holds no run: take another folder")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot make the run folder {folder}: {error.strerror}"
        ) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the run: of two that train in one folder each would drop what the other has written."""
    with alone(folder / LOCK) as mine:
        if not mine:
            raise BlockingIOError(
                f"another process is training in {folder}; wait for it, or take another folder "
                "with -o"
            )
        yield


def _compare(config: Path, settings: Settings) -> None:
    before = _flat(load_recipe(str(config)).model_dump())
    now = _flat(settings.model_dump())
    for key in sorted(before.keys() | now.keys()):
        if key == "data.size" and before.get(key) is None:
            continue  # of a run from before the only size there was got written down
        if before.get(key) != now.get(key) and not key.startswith(_FREE):
            command = f"dsf train -o {quote(str(config.parent))} --resume"
            raise ValueError(
                f"{key}: the run in {config.parent} has {before.get(key)!r}; got {now.get(key)!r}. "
                f"A resumed run keeps its settings: `{command}` has them all, or start another "
                "with -o"
            )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, dict)
        result |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return result


def trained_on(folder: Path) -> str | None:
    """The sha256 of the images that a run learned from, where it says so."""
    path = folder / ENVIRONMENT
    found = read_json(path).get("images_sha256") if path.is_file() else None
    return found if isinstance(found, str) else None


def _write_environment(folder: Path, loop: Loop, split: Split) -> None:
    path, now = folder / ENVIRONMENT, environment(loop.device)
    if split.sha256 is not None:
        now["images_sha256"] = split.sha256
    if loop.step and path.is_file():
        first = read_json(path)
        resumed = [*first.get("resumed", []), {"step": loop.step, **now}]
        write_json(path, first | {"resumed": resumed})
    else:
        write_json(path, now)


def _cost(loop: Loop, settings: Settings) -> dict[str, Any]:
    """What the run took, so that runs can be compared at equal resources."""
    images = loop.step * settings.batch_size
    peak = loop.peak_memory
    if loop.device.type == "cpu" and sys.platform != "win32":
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "protocol": {"recipe": settings.recipe, "epochs": settings.epochs, "seed": settings.seed},
        "images": images,
        "views": images * settings.views.total,
        "processes": distributed.world_size(),
        "device_seconds": loop.seconds["all"] * distributed.world_size(),
        "peak_memory_bytes": peak,
    }


def write_results(folder: Path, results: dict[str, Any]) -> None:
    """Add to ``results.json``, which others may be adding to as well."""
    path = folder / RESULTS
    with locked(folder):
        write_json(path, (read_json(path) if path.is_file() else {}) | results)
