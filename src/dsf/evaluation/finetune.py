"""Fine-tuning: all weights of an encoder are trained further with labels."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from dsf.data import EpochSampler
from dsf.data.augment import Recipe
from dsf.evaluation.features import evaluating
from dsf.evaluation.images import LabelledImages
from dsf.evaluation.linear_paper import start_classifier
from dsf.evaluation.partial import Partial
from dsf.evaluation.progress import Progress
from dsf.evaluation.protocol import Protocol, Result
from dsf.evaluation.scores import score
from dsf.models import join_batch_norm
from dsf.precision import matmul
from dsf.training.schedules import Schedule

if TYPE_CHECKING:
    from dsf.evaluation.subject import Subject


def _spaced(low: float, high: float, count: int) -> tuple[float, ...]:
    """Numbers at equal distances of their logarithms, both ends among them."""
    ratio = math.log(high / low) / (count - 1)
    return tuple(float(f"{low * math.exp(ratio * place):.4g}") for place in range(count))


STEPS = 20_000
LEARNING_RATES = _spaced(1e-4, 1e-1, 7)
WEIGHT_DECAYS = (0.0, *_spaced(1e-6, 1e-3, 7))


class Setting(NamedTuple):
    """A point of the grid."""

    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class Finetune(Protocol):
    """The accuracy after training all weights, as in SimCLR (Chen et al., 2020, appendix B.8).

    1. For each learning rate and weight decay of the grid the encoder and a linear classifier on
       it are trained on the training images and scored on validation images: the data set's own,
       or else a stratified part held out from the training images. The best score wins, of equals
       the lowest learning rate and then the highest weight decay.
    2. With these settings they are trained on both parts, and meet the test images once.

    SGD with Nesterov momentum, a half cosine without warm-up; views are a random resized crop and
    a flip. A weight decay of the grid is what a step at the highest learning rate takes away from
    the weights: SGD's coefficient is that divided by the learning rate. It applies to all weights.
    The momentum of BatchNorm's statistics is max(1 - 10 / s, 0.9) for s steps an epoch.

    Args:
        steps: of each training.
        batch_size: images a step; all of them if there are fewer.
        learning_rates: of the grid.
        weight_decays: of the grid.
        momentum: of SGD.
        held_out: the share of the training images to choose on, without official ones.
        budget: set by ``within``: 1 for the protocol as published.
    """

    name: ClassVar[str] = "finetune"
    method: ClassVar[str] = (
        "all weights trained by SGD with Nesterov momentum on random crops and flips; learning "
        "rate and weight decay chosen on validation images, then trained on these too"
    )
    steps: int = STEPS
    batch_size: int = 256
    learning_rates: tuple[float, ...] = LEARNING_RATES
    weight_decays: tuple[float, ...] = WEIGHT_DECAYS
    momentum: float = 0.9
    held_out: float = 0.1
    budget: float = 1.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")
        if not self.learning_rates or not min(self.learning_rates) > 0:
            raise ValueError(
                f"learning_rates must be one or more numbers > 0; got {self.learning_rates}"
            )
        if not self.weight_decays or not min(self.weight_decays) >= 0:
            raise ValueError(
                f"weight_decays must be one or more numbers >= 0; got {self.weight_decays}"
            )

    def within(self, budget: float) -> "Finetune":
        """A short version, unless the budget is 1.

        It takes this share of the steps, and of the grid every second learning rate with two
        weight decays, the lowest and the middle one.
        """
        if not 0 < budget <= 1:
            raise ValueError(f"budget must be in (0, 1], a share of the steps; got {budget!r}")
        if budget == 1:
            return self
        decays = sorted(self.weight_decays)
        return replace(
            self,
            steps=max(1, round(budget * self.steps)),
            learning_rates=self.learning_rates[::2],
            weight_decays=tuple(dict.fromkeys((decays[0], decays[len(decays) // 2]))),
            budget=budget,
        )

    def changes(self, default: Protocol) -> str:
        """What differs; of a short version only its budget."""
        return super().changes(default) if self.budget == 1 else f"budget={self.budget:g}"

    def settings(self, subject: "Subject") -> dict[str, Any]:
        """Its fields, and on what settings are chosen and scored."""
        return super().settings(subject) | {
            "chosen_on": subject.task.chosen_on(self.held_out),
            "metric": subject.task.metric,
        }

    def evaluate(self, subject: "Subject", seed: int = 0) -> Result:
        """Choose, train and test."""
        task = subject.task
        held, rest = task.hold_out(self.held_out, seed)
        train, validation = task.train.part(rest), task.train.part(held)
        subject.features_of(validation)  # raises for an encoder that gives NaN, before hours of it
        grid = [Setting(*pair) for pair in _pairs(self.learning_rates, self.weight_decays)]
        table = []
        partial = Partial(subject.partial, self.describe(subject, seed))
        tried = grid if len(grid) > 1 else []
        new = sum(partial.get(setting._asdict()) is None for setting in tried)
        progress = Progress(subject.say, self.steps * (new + 1))

        def told(training: str) -> Callable[[int], None]:
            steps = f"of {self.steps:,} steps"
            return lambda step: progress.step(f"finetune: {training}, {step:,} {steps}")

        for number, setting in enumerate(tried, start=1):
            named = setting._asdict()
            found = partial.get(named)
            if found is None:
                at = told(f"setting {number} of {len(grid)}")
                model = self._train(subject, train, setting, seed, at)
                predictions = _predictions(subject, model, validation)
                # A training that diverged is wrong everywhere, whatever the largest of NaNs is.
                found = score(predictions, validation.labels, task.classes).by(task.metric)
                partial.add(named, found)
            table.append({**named, "score": found})
            subject.say(
                f"finetune: {len(table)} of {len(grid)} settings, learning rate "
                f"{setting.learning_rate:g}, weight decay {setting.weight_decay:g}: "
                f"{100 * found:.2f} % of validation images"
            )
        chosen = _best(table) if table else grid[0]
        model = self._train(subject, task.train, chosen, seed, told("with the chosen setting"))
        test = task.tested()
        predictions = _predictions(subject, model, test)
        if broken := int((predictions < 0).sum()):
            raise ValueError(
                f"finetune diverged: the logits of {broken} of {len(test)} test images are not "
                f"finite with learning rate {chosen.learning_rate:g} and weight decay "
                f"{chosen.weight_decay:g}, the best of {len(grid)} settings: the learning rate is "
                f"too high, or the encoder overflows in {subject.autocast or subject.encode.dtype}"
            )
        scores = score(predictions, test.labels, task.classes)
        numbers = {"accuracy": scores.accuracy, "mean_per_class": scores.mean_per_class}
        details = {"chosen": chosen._asdict(), "validation": table, **scores.details()}
        described = self.describe(subject, seed)
        state = model.state_dict()
        return Result(described, numbers, details, state, partial.seconds, partial.remove)

    def _train(
        self,
        subject: "Subject",
        images: LabelledImages,
        setting: Setting,
        seed: int,
        at: Callable[[int], None] = lambda step: None,
    ) -> "Classifier":
        """A copy of the encoder with a classifier, trained; never waits for the device.

        ``at`` is told how many steps are done.
        """
        batch = min(self.batch_size, len(images))
        sampler = EpochSampler(len(images), batch, seed, 0, 1, device=images.labels.device)
        model = Classifier(subject, seed)
        model.train()
        _set_batch_norm(model, steps_per_epoch=max(1, len(images) // batch))
        rate, decay = setting
        on_gpu = {"fused": True} if subject.device.type == "cuda" else {"foreach": True}
        optimiser = SGD(
            model.parameters(),
            lr=rate,
            momentum=self.momentum,
            nesterov=self.momentum > 0,
            weight_decay=decay / rate,
            **on_gpu,
        )
        schedule = Schedule(rate, self.steps, 1)
        views = subject.views(Recipe(), seed)
        labels = images.labels.to(subject.device)
        only = torch.zeros(1, dtype=torch.int64, device=subject.device)
        number = torch.zeros((), dtype=torch.int64, device=subject.device)
        batches = images.batches(_order(sampler, self.steps), subject.device)
        devices = [subject.device] if subject.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)  # for layers that draw by themselves, such as dropout
            for step, (samples, pixels) in enumerate(batches):
                with torch.no_grad():
                    # Views follow the step, not the epoch: no two of an image are the same.
                    seen = views(pixels, samples, number + step, only, images.sizes(samples))
                for group in optimiser.param_groups:
                    group["lr"] = schedule(step)
                loss = cross_entropy(model(seen.flatten(0, 1)), labels[samples])
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                at(step + 1)
        return model


class Classifier(nn.Module):
    """A copy of an encoder and a linear classifier on it.

    Args:
        subject: whose encoder is copied.
        seed: of the classifier's first weights.
    """

    def __init__(self, subject: "Subject", seed: int) -> None:
        super().__init__()
        self.encoder = join_batch_norm(copy.deepcopy(subject.encoder)).requires_grad_(True)
        weight, bias = start_classifier(subject, seed)
        self.weight, self.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        self._encode = copy.copy(subject.encode)
        self._encode.encoder = self.encoder

    def forward(self, images: Tensor) -> Tensor:
        """(B, C) logits of normalised images; the classifier computes in full precision."""
        features = self._encode(images)
        with torch.autocast(images.device.type, enabled=False):
            return matmul(features, self.weight.T) + self.bias


@torch.no_grad()
def _predictions(subject: "Subject", model: Classifier, images: LabelledImages) -> Tensor:
    """The classes of images, -1 where the logits are not finite."""
    predictions = torch.empty(len(images), dtype=torch.int64, device=subject.device)
    with evaluating(model):
        for rows, pixels in subject.test_images(images):
            logits = model(subject.encode.normalise(pixels))
            finite = logits.isfinite().all(dim=1)
            predictions[rows] = torch.where(finite, logits.argmax(dim=1), -1)
    return predictions


def _best(table: Sequence[dict[str, float]]) -> Setting:
    best = max(table, key=lambda row: (row["score"], -row["learning_rate"], row["weight_decay"]))
    return Setting(best["learning_rate"], best["weight_decay"])


def _pairs(rates: Sequence[float], decays: Sequence[float]) -> Iterator[tuple[float, float]]:
    return ((rate, decay) for rate in rates for decay in decays)


def _order(sampler: EpochSampler, steps: int) -> Iterator[Tensor]:
    """Batches of so many steps, epoch after epoch."""
    done = epoch = 0
    while done < steps:
        for samples in sampler.batches(epoch):
            yield samples
            done += 1
            if done == steps:
                return
        epoch += 1


def _set_batch_norm(model: nn.Module, steps_per_epoch: int) -> None:
    # torch's momentum is the share of the new, 1 less than what others call so.
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.momentum is not None:
            module.momentum = min(10 / steps_per_epoch, 0.1)
