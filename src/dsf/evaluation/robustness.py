"""The errors of a linear model, trained on clean images, on corrupted ones."""

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from dsf.evaluation.features import evaluating
from dsf.evaluation.linear import LinearFast
from dsf.evaluation.linear_paper import LinearPaper
from dsf.evaluation.protocol import Protocol, Result
from dsf.precision import matmul

if TYPE_CHECKING:
    from dsf.evaluation.subject import Subject


@dataclass(frozen=True)
class Corruption(Protocol):
    """The error on corrupted test images (Hendrycks and Dietterich, 2019), as the paper reports it.

    A linear model is trained on clean images, which alone it is chosen on, and tested on each type
    of corruption at each severity. Images that are stored whole, such as CIFAR's, are corrupted
    as they are; of others what the encoder sees of them, as in ImageNet-C.

    Args:
        linear: how the model is trained.
        types: names of ``dsf.data.corruptions``; by default all 18 of the paper.
        severities: of 1 to 5.
        published: a folder of published corrupted images, CIFAR-10-C's or ImageNet-C's, to be
            read instead of making them.
    """

    name: ClassVar[str] = "corruption"
    method: ClassVar[str] = (
        "a linear model trained on clean images, tested on corrupted ones; mean over severities, "
        "then over types"
    )
    linear: LinearFast | LinearPaper = field(default_factory=LinearFast)
    types: tuple[str, ...] | None = None
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    published: str | None = None

    def settings(self, subject: "Subject") -> dict[str, Any]:
        """Its fields, the types by their names and the model with its own settings."""
        own = {"name": self.linear.name, **self.linear.settings(subject)}
        return super().settings(subject) | {"linear": own, "types": list(self._types())}

    def changes(self, default: Protocol) -> str:
        """What differs; of published images only that they are."""
        found = super().changes(default)
        return found.replace(f"published={self.published}", "published")

    def evaluate(self, subject: "Subject", seed: int = 0) -> Result:
        """Train on clean images, test on corrupted ones."""
        from dsf.evaluation.corruption import corruption_errors

        self.check(subject)
        trained = self.linear.evaluate(subject, seed)
        task, test = subject.task, subject.task.tested()
        found = corruption_errors(
            LinearModel(subject, trained),
            subject.pixels(test, resized=test.squashed),
            test.labels.to(subject.device),
            names=self._types(),
            severities=self.severities,
            seed=seed,
            published=self.published,
            classes=task.names or None,
            device=subject.device,
        )
        numbers = {"mce": found.mce, "clean_error": found.clean_error, "excess": found.excess}
        by_severity = {
            severity: fmean(errors[severity] for errors in found.errors.values())
            for severity in self.severities
        }
        if 1 in by_severity:
            numbers["mce_of_severity_1"] = by_severity[1]
        details = {
            "by_type": found.by_type,
            "by_severity": list(by_severity.values()),
            "errors": {name: list(row.values()) for name, row in found.errors.items()},
            "corruptions": found.protocol,
            "linear": trained.numbers,
            "chosen": trained.details.get("chosen"),
        }
        return Result(self.describe(subject, seed), numbers, details, trained.state)

    def check(self, subject: "Subject") -> None:
        """Look for textures or published images before a model is trained for them."""
        from dsf.data.corruptions.published import class_folders, find_published
        from dsf.data.corruptions.textures import find_textures

        if self.published is None:
            if "frost" in self._types():
                find_textures()
            return
        for name in self._types():
            for severity in self.severities:
                place = find_published(self.published, name, severity)
                if place.is_dir():
                    class_folders(place, subject.task.names or None)

    def _types(self) -> tuple[str, ...]:
        from dsf.data.corruptions import CORRUPTIONS

        return CORRUPTIONS if self.types is None else self.types


class LinearModel:
    """Predicts classes of bytes: the encoder, and a linear classifier that was trained on it.

    Args:
        subject: whose encoder.
        trained: what ``LinearFast`` or ``LinearPaper`` found.
    """

    def __init__(self, subject: "Subject", trained: Result) -> None:
        self.subject, self.state = subject, trained.state

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """(B,) classes of (B, 3, H, W) uint8 images on the device."""
        encode, state = self.subject.encode, self.state
        with evaluating(self.subject.encoder):
            features = encode(encode.normalise(self.subject.fixed_view(images)))
        standard = (features - state["mean"]) / state["std"]
        return (matmul(standard, state["weight"].T) + state["bias"]).argmax(dim=1)
