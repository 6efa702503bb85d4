"""Who is evaluated on what: an encoder, a task, and how the one sees the images of the other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from dsf.data.augment import RECIPES, Recipe, Views
from dsf.evaluation.features import (
    Encode,
    evaluating,
    extract_batches,
    same_size_batches,
)
from dsf.evaluation.fixed_view import FixedView
from dsf.evaluation.images import LabelledImages
from dsf.evaluation.scores import Metric
from dsf.evaluation.subsets import hold_out

Name = Literal["train", "test"]
# Side of the largest images that count as small: what is done to them follows CIFAR's protocols.
SMALL = 64
# Pixels of the images whose views are made and encoded at a time: 4,096 of 32 x 32.
_PIXELS = 4096 * 32 * 32
_MEAN, _STD = RECIPES["mocov3-1"].mean, RECIPES["mocov3-1"].std


class Features(NamedTuple):
    """What an encoder makes of images: (N, F), what its head makes of that, and labels (N,)."""

    backbone: Tensor
    projection: Tensor | None
    labels: Tensor

    def kinds(self) -> dict[str, Tensor]:
        """Those there are, by name."""
        found = {"backbone": self.backbone}
        return found if self.projection is None else found | {"projection": self.projection}


@dataclass(frozen=True)
class Task:
    """Images with labels to learn from, and others to be tested on.

    Args:
        train: to learn from, the official validation images among them.
        test: looked at last; None where an evaluation does without.
        classes: how many there are.
        validation: (n,) int64, which of the training images are the official ones to choose
            settings on; None where the data set has none.
        metric: what the data set is reported with.
        names: of the classes, where they are known.
        about: the data set's name and content, for protocols.
    """

    train: LabelledImages
    test: LabelledImages | None
    classes: int
    validation: Tensor | None = None
    metric: Metric = "top-1"
    names: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classes must be >= 2; got {self.classes}")
        for part in filter(None, (self.train, self.test)):
            low, high = (int(bound) for bound in part.labels.aminmax())
            if low < 0 or high >= self.classes:
                raise ValueError(
                    f"the labels of {part.name} must be in [0, {self.classes}), the number of "
                    f"classes; got {low} to {high}"
                )
        seen = torch.bincount(self.train.labels, minlength=self.classes) > 0
        if int(seen.sum()) < 2:
            raise ValueError(f"{self.train.name} must have images of two classes or more; got one")

    def to(self, device: torch.device | str) -> "Task":
        """The same on a device."""
        test = None if self.test is None else self.test.to(device)
        return replace(self, train=self.train.to(device), test=test)

    def tested(self) -> LabelledImages:
        """The test images; ``ValueError`` if there are none."""
        if self.test is None:
            raise ValueError(f"{self.train.name}: there are no test images beside it")
        return self.test

    def hold_out(self, share: float, seed: int) -> tuple[Tensor, Tensor]:
        """Rows of the training images to choose on, and the rest: official ones, or by chance.

        Args:
            share: of each class, without official ones.
            seed: of chance.
        """
        return hold_out(self.train.labels, share, seed, self.validation)

    def chosen_on(self, share: float) -> str:
        """What ``hold_out`` holds out, in words."""
        if self.validation is None:
            return f"{share:g} of the training images, stratified"
        return f"the {len(self.validation)} official validation images"


class Subject:
    """An encoder that is evaluated on a task.

    Args:
        encoder: (B, 3, H, W) normalised images to (B, F) features; it is moved to the device.
        task: what it is evaluated on; images in memory are moved there too, unless ``resident``
            is False.
        project: a head on the features, such as a method's projector: evaluations look at its
            output too.
        size: side of the images that the encoder sees; by default the stored one up to 64 pixels
            and 224 above, and of a transformer the one it was built for.
        mean: of the levels divided by 255, a channel each; ImageNet's by default.
        std: what they are divided by after that.
        recipe: how views are made where an evaluation wants such as in training.
        device: by default where the encoder is.
        autocast: torch.bfloat16, say, for the encoder; full precision by default.
        compile: compile the encoder for frozen evaluations.
        resident: keep images that lie in memory on the device.
        batch_size: images that are encoded at a time.
        about: what to say of the encoder in protocols.
        say: told how far a long evaluation is.
        partial: a folder in which a long evaluation keeps what it has, to go on if it is killed.
    """

    def __init__(
        self,
        encoder: nn.Module,
        task: Task,
        *,
        project: nn.Module | Callable[[Tensor], Tensor] | None = None,
        size: int | None = None,
        mean: Sequence[float] = _MEAN,
        std: Sequence[float] = _STD,
        recipe: Recipe | None = None,
        device: torch.device | str | None = None,
        autocast: torch.dtype | None = None,
        compile: bool = False,
        resident: bool = True,
        batch_size: int = 512,
        about: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = lambda text: None,
        partial: Path | None = None,
    ) -> None:
        parameter = next(encoder.parameters(), None)
        self.device = torch.device(
            device or (torch.device("cpu") if parameter is None else parameter.device)
        )
        self.encoder = encoder.to(self.device)
        self.project = project.to(self.device) if isinstance(project, nn.Module) else project
        if self.device.type == "cuda":
            self.encoder.to(memory_format=torch.channels_last)
        if compile:
            self.encoder.compile(dynamic=False)
        self.task = task.to(self.device) if resident else task
        self.mean, self.std = tuple(mean), tuple(std)
        self.encode = Encode(self.encoder, mean, std, self.device, autocast)
        self.autocast, self.batch_size = autocast, batch_size
        self.about, self.say, self.partial = dict(about or {}), say, partial
        self.size = _image_size(encoder, task.train, size)
        self.fixed_view = FixedView(task.train, self.size).to(self.device)
        self.recipe = recipe or (RECIPES["cifar"] if self.small else RECIPES["mocov3-1"])

    @property
    def small(self) -> bool:
        """Whether the encoder sees small images, such as CIFAR's."""
        return self.size <= SMALL

    @cached_property
    def width(self) -> int:
        """F, the number of features."""
        black = torch.zeros(1, 3, self.size, self.size, device=self.device)
        # Not worth compiling for.
        with (
            torch.no_grad(),
            evaluating(self.encoder),
            torch.compiler.set_stance("force_eager"),
        ):
            return self.encode(black).shape[1]

    def describe(self) -> dict[str, Any]:
        """What protocols say of encoder and task."""
        return {
            **self.about,
            "data": {
                **self.task.about,
                "classes": self.task.classes,
                "train_samples": len(self.task.train),
                "test_samples": 0 if self.task.test is None else len(self.task.test),
            },
            "image_size": self.size,
            "test_images": self.fixed_view.summary,
            "precision": str(self.autocast or self.encode.dtype).removeprefix("torch."),
        }

    def features(self, name: Name) -> Features:
        """Those of the training or test images, computed once."""
        return self._train_features if name == "train" else self._test_features

    @cached_property
    def _train_features(self) -> Features:
        return self.features_of(self.task.train)

    @cached_property
    def _test_features(self) -> Features:
        return self.features_of(self.task.tested())

    def features_of(self, images: LabelledImages) -> Features:
        """Features of any images of the same kind, without augmentation."""
        count = len(images)
        batches = (
            (rows, self.encode.normalise(pixels)) for rows, pixels in self.test_images(images)
        )
        backbone = extract_batches(self.encode, batches, count)
        return Features(backbone, self.projected(backbone), images.labels.to(self.device))

    def test_images(
        self, images: LabelledImages, resized: bool = True
    ) -> Iterator[tuple[slice, Tensor]]:
        """Images as they are tested, or as they are stored, in bytes, with the rows they are."""
        rows = list(same_size_batches(len(images), self.batch_size))
        every = torch.arange(len(images), device=images.labels.device)
        batches = images.batches((every[part] for part in rows), self.device)
        for part, batch in zip(rows, batches, strict=True):
            pixels = batch.images
            if resized:
                pixels = self.fixed_view(pixels, images.sizes(batch.samples))
            yield part, pixels

    def pixels(self, images: LabelledImages, resized: bool = True) -> Tensor:
        """All images as they are tested, or as they are stored: (N, 3, H, W) bytes."""
        height, width = (self.size, self.size) if resized else images.image_size
        shape = (len(images), height, width, 3)
        result = torch.empty(shape, dtype=torch.uint8, device=self.device).permute(0, 3, 1, 2)
        for rows, part in self.test_images(images, resized):
            result[rows] = part
        return result

    @torch.no_grad()
    def projected(self, features: Tensor) -> Tensor | None:
        """What the head makes of features, in full precision; None without a head."""
        if self.project is None:
            return None
        with evaluating(self.project), torch.autocast(self.device.type, enabled=False):
            parts = [self.project(part) for part in features.split(8 * self.batch_size)]
        return torch.cat(parts)

    def views(self, recipe: Recipe, seed: int) -> Views:
        """What makes views for the encoder by a recipe, but with the encoder's normalisation."""
        (*mean,), (*std,) = self.mean, self.std
        own = replace(recipe, mean=(mean[0], mean[1], mean[2]), std=(std[0], std[1], std[2]))
        dtype = self.autocast or self.encode.dtype
        return Views(own, self.size, seed, dtype=dtype).to(self.device)

    def views_at_a_time(self, multiple: int = 1) -> int:
        """How many views to make and encode at a time: a multiple of a number, not too large."""
        side = max(self.size, *self.task.train.image_size)
        return max(1, _PIXELS // (multiple * side**2)) * multiple


def _image_size(encoder: nn.Module, images: LabelledImages, size: int | None) -> int:
    own, strict = _transformer_size(encoder)
    if size is None:
        stored = images.image_size[0]
        size = own or (stored if stored <= SMALL else 224)
    if strict and size != own:
        raise ValueError(
            f"size: this encoder takes images of {own} pixels and no others; got {size}"
        )
    if not 4 <= size <= 1024:
        raise ValueError(f"size must be in [4, 1024] pixels; got {size}")
    return size


def _transformer_size(encoder: nn.Module) -> tuple[int | None, bool]:
    """The side of images that a vision transformer of timm is made for; whether it takes no other.

    One that was trained with local views takes others, by interpolated positions.
    """
    patches = getattr(encoder, "patch_embed", None)
    size = getattr(patches, "img_size", None)
    return (int(size[0]), getattr(patches, "strict_img_size", True)) if size else (None, False)
