"""Linear evaluation on augmented views: the protocol ``paper``."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dsf.data import EpochSampler
from dsf.data.augment import Recipe, Views
from dsf.evaluation._samples import Samples, classify
from dsf.evaluation.features import evaluating
from dsf.evaluation.images import LabelledImages
from dsf.evaluation.progress import Progress
from dsf.evaluation.protocol import Protocol, Result, plain
from dsf.evaluation.scores import score
from dsf.evaluation.subsets import few_labels
from dsf.precision import matmul
from dsf.training.optimisers import create_optimiser
from dsf.training.schedules import Schedule

if TYPE_CHECKING:
    from dsf.evaluation.subject import Subject


@dataclass(frozen=True)
class LinearPaper(Protocol):
    """The accuracy of a linear classifier trained by SGD on augmented views, as in the paper.

    Each epoch makes one new view of each training image, which the frozen encoder turns into
    features. The classifier of the last epoch is tested, once: no epoch is chosen, and no setting.
    (The authors' scripts keep the epoch that is best on the test set.)

    Since the encoder is frozen and in evaluation mode, no image meets another in it. So it encodes
    thousands of views at a time, and SGD then takes its steps of ``batch_size`` through them: the
    same numbers as encoding each batch by itself, without its overhead.

    Views are a random resized crop and a flip; of images up to 64 pixels colour jitter (0.4, 0.4,
    0.4, 0.1) with probability 0.8 and grayscale with 0.2 too. The weights start from N(0, 0.01^2),
    biases from 0; the learning rate changes with the epoch.

    Args:
        labels: the share of the training labels that may be used, stratified by class.
        epochs: over them.
        batch_size: views a step of SGD.
        learning_rate: at the beginning; it falls to 0 by a half cosine.
        momentum: of SGD.
        weight_decay: of SGD.
    """

    name: ClassVar[str] = "linear-paper"
    method: ClassVar[str] = (
        "a linear classifier on the frozen encoder's features of augmented views, by SGD with a "
        "cosine schedule; the last epoch counts"
    )
    labels: float = 1.0
    epochs: int = 30
    batch_size: int = 256
    learning_rate: float = 30.0
    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")

    def recipe(self, subject: "Subject") -> Recipe:
        """How its views are made."""
        return Recipe(jitter=0.8, grayscale=0.2) if subject.small else Recipe()

    def settings(self, subject: "Subject") -> dict[str, Any]:
        """Its fields, and what of the views' recipe is in use."""
        recipe = asdict(self.recipe(subject))
        names = ["crop_scale", "crop_ratio", "flip", "jitter", "grayscale"]
        if recipe["jitter"]:
            names += ["brightness", "contrast", "saturation", "hue"]
        return super().settings(subject) | {"views": {name: plain(recipe[name]) for name in names}}

    def evaluate(self, subject: "Subject", seed: int = 0) -> Result:
        """Train and test."""
        task = subject.task
        rows = few_labels(task.train.labels, self.labels, seed)
        weight, bias = self._train(subject, task.train.part(rows), seed)
        if not bool(weight.isfinite().all() & bias.isfinite().all()):
            raise ValueError(
                f"linear-paper diverged: the classifier is not finite after {self.epochs} epochs; "
                "the encoder gives NaN for some views, or learning_rate is too high "
                f"({self.learning_rate:g})"
            )
        test = subject.features("test")
        predictions, top5 = classify(
            lambda rows: matmul(rows, weight.T) + bias,
            Samples(test.backbone, test.labels),
            task.classes,
        )
        scores = score(predictions, test.labels, task.classes)
        numbers = {
            "accuracy": scores.accuracy,
            "mean_per_class": scores.mean_per_class,
            "top5": top5,
        }
        state = {
            "mean": torch.zeros_like(weight[0]),
            "std": torch.ones_like(weight[0]),
            "weight": weight,
            "bias": bias,
        }
        details = {"labels_used": len(rows), **scores.details()}
        return Result(self.describe(subject, seed), numbers, details, state)

    def _train(self, subject: "Subject", train: LabelledImages, seed: int) -> tuple[Tensor, Tensor]:
        weight, bias = start_classifier(subject, seed)
        groups = [{"params": [weight, bias], "weight_decay": self.weight_decay}]
        optimiser = create_optimiser("sgd", groups, self.learning_rate, self.momentum)
        steps = math.ceil(len(train) / self.batch_size)
        schedule = Schedule(self.learning_rate, self.epochs * steps, steps, per="epoch")
        views = subject.views(self.recipe(subject), seed)
        sampler = EpochSampler(len(train), 1, seed, 0, 1, device=train.labels.device)
        labels = train.labels.to(subject.device)
        with (
            evaluating(subject.encoder),
            torch.autocast(subject.device.type, enabled=False),
        ):
            progress = Progress(subject.say, self.epochs)
            for epoch in range(self.epochs):
                for group in optimiser.param_groups:
                    group["lr"] = schedule(epoch * steps)
                order = sampler.order(epoch)
                for samples, features in self._encoded(subject, train, views, order, epoch):
                    for part, targets in zip(
                        features.split(self.batch_size),
                        labels[samples].split(self.batch_size),
                        strict=True,
                    ):
                        loss = cross_entropy(matmul(part, weight.T) + bias, targets)
                        loss.backward()
                        optimiser.step()
                        optimiser.zero_grad()
                progress.step(f"{self.name}: {epoch + 1} of {self.epochs} epochs")
        return weight.detach(), bias.detach()

    @torch.no_grad()
    def _encoded(
        self,
        subject: "Subject",
        train: LabelledImages,
        views: Views,
        order: Tensor,
        epoch: int,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Samples in their order and the features of one view each, in multiples of a batch."""
        chunk = min(subject.views_at_a_time(self.batch_size), len(order))
        only = torch.zeros(1, dtype=torch.int64, device=subject.device)
        number = torch.full((), epoch, dtype=torch.int64, device=subject.device)
        # All chunks are of one size, for a compiled encoder: the last one begins earlier, and what
        # it repeats is dropped.
        starts = range(0, len(order), chunk)
        parts = (order[min(start, len(order) - chunk) :][:chunk] for start in starts)
        for start, batch in zip(starts, train.batches(parts, subject.device), strict=True):
            sizes = train.sizes(batch.samples)
            pixels = views(batch.images, batch.samples, number, only, sizes)
            features = subject.encode(pixels.flatten(0, 1))
            fresh = max(0, start - (len(order) - chunk))
            yield batch.samples[fresh:], features[fresh:]


def start_classifier(subject: "Subject", seed: int) -> tuple[Tensor, Tensor]:
    """A weight (C, F) from N(0, 0.01^2) and a bias (C,) of zeros, the same on every device."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    shape = (subject.task.classes, subject.width)
    weight = 0.01 * torch.randn(shape, generator=generator, dtype=subject.encode.precision)
    bias = torch.zeros(shape[0], dtype=weight.dtype)
    return tuple(part.to(subject.device).requires_grad_() for part in (weight, bias))  # type: ignore[return-value]
