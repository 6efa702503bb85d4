"""Evaluations of runs and encoders: which protocols, on what, and the results they leave."""

import difflib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from dsf.data.stale import stale_note
from dsf.evaluation import (
    KNN,
    Corruption,
    Finetune,
    Geometry,
    LinearFast,
    LinearPaper,
    Protocol,
    Subject,
)
from dsf.experiments.page import read_run
from dsf.experiments.settings import Settings
from dsf.experiments.sources import is_run, is_weights, near_encoder
from dsf.experiments.subjects import (
    Opened,
    method_subject,
    open_encoder,
    open_run,
    run_settings,
    settings_task,
)
from dsf.experiments.unfinished import unfinished_note
from dsf.files import read_json
from dsf.methods import Method
from dsf.training.environment import environment
from dsf.training.numerics import Precision, numerics

NAMES = ("knn", "linear", "finetune", "corruption", "geometry")
PARTIAL = "partial"
"""The folder in which a long evaluation keeps what it has so far."""


@dataclass(frozen=True)
class Choices:
    """What may be chosen of the protocols.

    Args:
        linear: which linear evaluation is meant, also as the model of ``corruption``.
        labels: the share of training labels that ``linear`` may use.
        k: neighbours of ``knn``; by default the run's own, or all where there are fewer.
        budget: the share of the steps of ``finetune``, below 1 with a small grid.
        published: the folder of published corrupted images, instead of making them.
        leave_one_out: ``knn`` of each training image among the others; no test image is used.
        severities: of ``corruption``, of 1 to 5.
    """

    linear: Literal["fast", "paper"] = "fast"
    labels: float = 1.0
    k: int | None = None
    budget: float = 1.0
    published: str | None = None
    leave_one_out: bool = False
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)

    def protocols(self, names: Sequence[str], opened: Opened) -> list[Protocol]:
        """One a name."""
        if self.linear not in ("fast", "paper"):
            raise ValueError(f"linear must be fast or paper; got {self.linear!r}")
        return [self._protocol(name, opened) for name in names]

    def usual(self, name: str, opened: Opened) -> Protocol:
        """What a name stands for without choices; the two linear evaluations are each their own."""
        plain = Choices(linear=self.linear if name == "linear" else "fast")
        return plain._protocol(name, opened)

    def _protocol(self, name: str, opened: Opened) -> Protocol:
        linear = LinearFast if self.linear == "fast" else LinearPaper
        match name:
            case "knn":
                return KNN(
                    self.k or opened.knn.k,
                    opened.knn.temperature,
                    leave_one_out=self.leave_one_out,
                )
            case "linear":
                return linear(labels=self.labels)
            case "finetune":
                return Finetune().within(self.budget)
            case "corruption":
                return Corruption(linear(), severities=self.severities, published=self.published)
            case "geometry":
                return Geometry(k=opened.knn.k, temperature=opened.knn.temperature)
        raise ValueError(f"evaluation must be one of {', '.join(NAMES)}; got {name!r}")


class Evaluator:
    """Evaluates a method on its own data as often as asked.

    Args:
        settings: resolved ones.
        device: where to compute.
        images: of splits that lie there already.
    """

    def __init__(
        self,
        settings: Settings,
        device: torch.device,
        images: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.settings, self.device = settings, device
        self.task = settings_task(settings, device, images)

    def subject(self, method: Method, about: Mapping[str, Any] | None = None) -> Subject:
        """A method as what is evaluated."""
        return method_subject(self.settings, method, self.task, self.device, about)

    def numbers(self, protocol: Protocol, method: Method) -> dict[str, float]:
        """What a protocol finds while the method is being trained."""
        # Graphs are compiled for the training's shapes; evaluation would compile others.
        with torch.compiler.set_stance("force_eager"):
            return protocol.evaluate(self.subject(method), self.settings.seed).numbers


def evaluate(
    source: Path | str | nn.Module | Opened,
    names: Sequence[str] = ("knn",),
    device: str = "auto",
    *,
    data: str | None = None,
    choices: Choices | None = None,
    size: int | None = None,
    seed: int | None = None,
    random: bool = False,
    pretrained: bool = False,
    options: Mapping[str, Any] | None = None,
    compile: bool = False,
    folder: Path | str | None = None,
    again: bool = False,
    say: Callable[[str], None] = lambda text: None,
    done: Callable[[str, dict[str, Any]], None] = lambda name, entry: None,
    begin: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Evaluate a run or an encoder, and keep the results.

    ``results.json`` in the folder keeps each result under a name that says what is not usual about
    it, such as ``linear-paper labels=0.01`` or ``finetune@pets``. A result whose protocol is the
    same to the last setting, down to the hashes of checkpoint and data, is not computed again.
    Fine-tuning that was stopped goes on with the settings that are not yet tried.

    Args:
        source: the folder of a run, an encoder such as ``timm/resnet18``, a checkpoint of another
            project or an exported folder, any module that maps (B, 3, H, W) images to (B, F)
            features, or what was opened already.
        names: of ``NAMES``.
        device: where to compute: cpu, cuda or auto.
        data: the data set; of a run its own by default.
        choices: of the protocols.
        size: of the images that the encoder sees.
        seed: of all that is random; by default the run's.
        random: a run's encoder as it was before training.
        pretrained: an encoder of a library with its weights.
        options: what else an encoder or a checkpoint takes.
        compile: compile the encoder.
        folder: where to keep the results; by default the run's, or runs/ENCODER.
        again: compute also what is there.
        say: told what happens next.
        done: given each entry and its name as soon as it is there.
        begin: called once all that was asked for is found to be right, before the work.

    Returns:
        The entries of ``results.json`` that were asked for, by their names.
    """
    check_names(names)
    names = list(dict.fromkeys(names))
    choices = choices or Choices()
    tests = set(names) != {"knn"} or not choices.leave_one_out
    if isinstance(source, Opened):
        opened = source
    elif not isinstance(source, nn.Module) and is_run(source):
        for what, given in (("pretrained", pretrained), ("options", options)):
            if given:
                raise ValueError(f"{what}: a run has its own encoder; got {given!r} for {source}")
        if meant := near_encoder(source):
            raise ValueError(f"{source} is neither a run nor an encoder: did you mean {meant}?")
        opened = open_run(source, device, data, size, random, compile, tests)
        checkpoint = opened.subject.about["checkpoint"]
        if checkpoint and (note := unfinished_note(read_run(source), checkpoint)):
            say(note)
        if data is None and _has_changed(Path(source), opened):
            say(f"note: {opened.subject.task.about['name']} has changed since it was learned from")
    else:
        encoder = source if isinstance(source, nn.Module) else str(source)
        if random and isinstance(encoder, str) and is_weights(encoder):
            raise ValueError(f"random: {source} is weights; name the encoder, such as resnet18")
        weights = pretrained and not random
        opened = open_encoder(
            encoder, data, device, size, weights, options, compile, seed or 0, tests
        )
    if opened is not source:
        task = opened.subject.task
        if note := stale_note(task.about["name"], task.train.image_size[0]):
            say(f"note: {note}")
    protocols = choices.protocols(names, opened)
    usual = [choices.usual(name, opened) for name in names]
    keep = opened.folder if folder is None else Path(folder)
    opened.subject.say, opened.subject.partial = say, keep / PARTIAL
    chosen_seed = opened.seed if seed is None else seed
    wanted: list[_Job] = []
    for protocol, default in zip(protocols, usual, strict=True):
        name = result_name(protocol, default, opened, seed=chosen_seed, size=size)
        if isinstance(protocol, KNN) and choices.k is None:
            protocol = protocol.at_most(len(opened.subject.task.train) - choices.leave_one_out)
            if protocol.lowered_from is not None:
                say(f"{name}: k={protocol.k}, as there are only so many training images")
        known = None if again else _known(keep, name, protocol, opened.subject, chosen_seed)
        if known is None:
            protocol.check(opened.subject)  # of all, before the first takes its time
        wanted.append(_Job(name, protocol, known))
    keep.mkdir(parents=True, exist_ok=True)
    _kept(keep)  # to a damaged file nothing could be added, after all the work
    begin()
    if opened.untrained and opened is not source and not random:
        theirs = str(source).startswith(("timm/", "torchvision/"))
        hint = "; --pretrained takes those of its library" if theirs else ""
        say(f"note: the weights of {source} are random{hint}")
    results = {}
    precision: Precision = "fp32" if opened.subject.autocast is None else "bf16"
    with numerics(precision, deterministic=False, autotune=False):
        for name, protocol, known in wanted:
            if known is None:
                say(f"{name}: evaluating")
                known = _evaluated(keep, name, protocol, opened.subject, chosen_seed, done)
            else:
                say(f"{name}: kept, as it is there already")
                done(name, known)
            results[name] = known
    return results


def _has_changed(folder: Path, opened: Opened) -> bool:
    """Whether a run's data set holds other images than those that the run learned from."""
    from dsf.experiments.run import trained_on

    split = run_settings(folder, "cpu").data.split
    now = opened.subject.task.about["content"].get(split, {}).get("images")
    before = trained_on(folder)
    return None not in (before, now) and before != now


def check_names(names: Sequence[str]) -> None:
    """Raise ``ValueError`` for what is no evaluation."""
    for name in names:
        if name not in NAMES:
            close = difflib.get_close_matches(name, NAMES, 1)
            raise ValueError(
                f"evaluation must be one of {', '.join(NAMES)}; got {name!r}"
                + (f": did you mean {close[0]}?" if close else "")
            )


def result_name(
    protocol: Protocol, default: Protocol, opened: Opened, seed: int, size: int | None
) -> str:
    """What a result is called: its protocol, and what is not usual about it."""
    changes = [opened.options, protocol.changes(default)]
    changes += [f"seed={seed}"] if seed != opened.seed else []
    changes += [f"size={size}"] if size is not None else []
    about = f"{protocol.name}@{opened.data}" if opened.data else protocol.name
    return " ".join(filter(None, [f"{'untrained-' if opened.untrained else ''}{about}", *changes]))


class _Job(NamedTuple):
    """An evaluation that is asked for, and its result if that is there already."""

    name: str
    protocol: Protocol
    known: dict[str, Any] | None


def _known(
    folder: Path, name: str, protocol: Protocol, subject: Subject, seed: int
) -> dict[str, Any] | None:
    """The result that is there already, if it is of this protocol to the last setting."""
    known = _kept(folder).get(name)
    wanted = json.loads(json.dumps(protocol.describe(subject, seed)))
    return dict(known) if known is not None and known.get("protocol") == wanted else None


def _kept(folder: Path) -> dict[str, Any]:
    """All results in a folder."""
    from dsf.experiments.run import RESULTS

    path = folder / RESULTS
    return read_json(path) if path.is_file() else {}


def _evaluated(
    folder: Path,
    name: str,
    protocol: Protocol,
    subject: Subject,
    seed: int,
    done: Callable[[str, dict[str, Any]], None],
) -> dict[str, Any]:
    """A new result, which is kept at once."""
    from dsf.experiments.run import write_results

    start = time.perf_counter()
    result = protocol.evaluate(subject, seed)
    seconds = result.earlier + time.perf_counter() - start
    entry = result.entry()
    entry["provenance"] = environment(subject.device) | {"seconds": seconds}
    entry = dict(json.loads(json.dumps(entry)))
    done(name, entry)  # before it is written: to be seen even where the disk is full
    write_results(folder, {name: entry})
    result.forget()
    return entry


def told_numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a result that tell something: of five classes, all are among the first five.

    Example:
        >>> told_numbers({"protocol": {"data": {"classes": 2}}, "accuracy": 0.9, "top5": 1.0})
        {'accuracy': 0.9}
    """
    numbers = {name: value for name, value in entry.items() if isinstance(value, float)}
    classes = entry.get("protocol", {}).get("data", {}).get("classes")
    if classes is not None and classes <= 5:
        numbers.pop("top5", None)
    return numbers


def shown_numbers(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same as text, shares in percent."""
    percent = not str(entry.get("protocol", {}).get("name", "")).startswith(Geometry.name)
    return [
        (name.replace("_", " "), f"{100 * value:.2f} %" if percent else f"{value:.4g}")
        for name, value in told_numbers(entry).items()
    ]
