"""Evaluations of a run: features of the frozen encoder, neighbours, a linear classifier."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from dsf.data import Split
from dsf.evaluation import extract, knn, linear_fast
from dsf.experiments import build
from dsf.experiments.settings import Settings
from dsf.methods import Method
from dsf.methods._base import head

_BATCH = 512


class Features(NamedTuple):
    """What a method makes of a split: (N, F), (N, D) and labels (N,)."""

    backbone: Tensor
    projection: Tensor
    labels: Tensor


class Evaluator:
    """Extracts features of the training and test images as often as asked.

    Args:
        settings: resolved ones.
        device: where to compute.
    """

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.settings = settings
        self.device = device
        train = build.load_split(settings, "train")
        test = build.load_split(settings, "test")
        self._train = self._images(train, settings.data.limit)
        self._test = self._images(test, None)

    def _images(self, split: Split, limit: int | None) -> tuple[Tensor, Tensor]:
        resident = self.settings.data.resident is True
        images = split.images(self.device if resident else "cpu")[:limit]
        labels = split.labels(self.device)[:limit]
        size = self.settings.data.evaluation_size
        if size is not None and images.shape[-1] != size:
            images = _resized(images, size)
        return images, labels

    @torch.no_grad()
    def features(self, method: Method) -> tuple[Features, Features]:
        """Those of the training and of the test images."""
        train, test = (self._features(method, *part) for part in (self._train, self._test))
        return train, test

    def _features(self, method: Method, images: Tensor, labels: Tensor) -> Features:
        recipe = build.view_recipe(self.settings)
        bf16 = self.settings.precision == "bf16"
        # Graphs are compiled for the training's shapes; evaluation would compile others.
        with torch.compiler.set_stance("force_eager"):
            backbone = extract(
                method.encoder,
                images,
                recipe.mean,
                recipe.std,
                batch_size=_BATCH,
                device=self.device,
                autocast=torch.bfloat16 if bf16 else None,
            )
        training = method.projector.training
        method.projector.eval()
        parts = [head(method.projector, part) for part in backbone.split(8 * _BATCH)]
        method.projector.train(training)
        return Features(backbone, torch.cat(parts), labels)


def evaluate_knn(settings: Settings, train: Features, test: Features) -> dict[str, Any]:
    """The accuracies of backbone and projection by weighted votes of neighbours."""
    result: dict[str, Any] = {}
    for name in ("backbone", "projection"):
        found = knn(
            getattr(train, name),
            train.labels,
            getattr(test, name),
            test.labels,
            k=min(settings.knn.k, len(train.labels)),
            temperature=settings.knn.temperature,
        )
        result |= {"protocol": found.protocol, name: found.accuracy}
    return result


def evaluate_linear(settings: Settings, train: Features, test: Features) -> dict[str, Any]:
    """The accuracy of a linear classifier on the backbone's features."""
    found = linear_fast(
        train.backbone, train.labels, test.backbone, test.labels, seed=settings.seed
    )
    return {
        "protocol": found.protocol,
        "accuracy": found.accuracy,
        "top5": found.top5,
        "chosen": found.chosen,
        "held_out": found.held_out,
    }


EVALUATIONS = {"knn": evaluate_knn, "linear": evaluate_linear}


def _resized(images: Tensor, size: int) -> Tensor:
    parts = [
        interpolate(part.float(), size=(size, size), mode="bilinear", antialias=True)
        for part in images.split(_BATCH)
    ]
    return torch.cat([part.round().clamp(0, 255).to(torch.uint8) for part in parts])


def load_run(folder: Path | str, device: str = "auto") -> tuple[Settings, Method, Path]:
    """The settings of a run, its method as the newest whole checkpoint has it, and which that is.

    Args:
        folder: of the run.
        device: of the settings; what the run was trained on does not matter.
    """
    from dsf.experiments.recipe import load_recipe
    from dsf.experiments.run import CHECKPOINTS, CONFIG
    from dsf.training.checkpoints import Checkpoints, load_module

    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} is not a run: it has no {CONFIG}")
    changes = [f"device={device}", "compile=false", "graph=false"]
    settings = build.resolve(load_recipe(str(folder / CONFIG), changes))
    if settings.device == "cpu" and settings.precision == "bf16":  # slower there, and coarser
        settings = build.resolve(load_recipe(str(folder / CONFIG), [*changes, "precision=fp32"]))
    loaded, passed_over = Checkpoints(folder / CHECKPOINTS).newest()
    if loaded is None:
        reason = f" ({passed_over[0]})" if passed_over else ""
        raise FileNotFoundError(f"{folder} has no whole checkpoint yet{reason}")
    method = build.build_method(settings)
    load_module(method, loaded)
    return settings, method.to(settings.device), loaded.path


def evaluate(
    folder: Path | str, names: list[str] | tuple[str, ...] = ("knn",), device: str = "auto"
) -> dict[str, Any]:
    """Evaluate a run and keep the results in its folder.

    Args:
        folder: of the run.
        names: of ``EVALUATIONS``.
        device: where to compute.
    """
    from dsf.experiments.run import write_results

    for name in names:
        if name not in EVALUATIONS:
            raise ValueError(f"evaluation must be one of {', '.join(EVALUATIONS)}; got {name!r}")
    settings, method, checkpoint = load_run(folder, device)
    train, test = Evaluator(settings, torch.device(settings.device)).features(method)
    results = {name: EVALUATIONS[name](settings, train, test) for name in names}
    for result in results.values():
        result["protocol"] |= {"checkpoint": checkpoint.name, "precision": settings.precision}
    write_results(Path(folder), results)
    return results
