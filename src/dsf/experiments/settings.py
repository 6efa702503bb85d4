"""The settings of a run: what may be chosen, the defaults, and what contradicts what."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from dsf.experiments.checks import check_patches, check_rate, scaled_rate
from dsf.experiments.part import Part
from dsf.experiments.view_settings import Views
from dsf.losses.dsf import Divergence, DSFSimilarity, Mode, QueueKappa
from dsf.losses.polyview import Pooling
from dsf.methods.moco import Shuffle
from dsf.models import ENCODERS, HEADS
from dsf.vmf.estimate import Estimator

AUTO: Literal["auto"] = "auto"
Switch = Literal["auto", True, False]
Fraction = Annotated[float, Field(ge=0, le=1)]
_MOST = 1e30  # optimisers multiply in float32, which ends at 3.4e38


class Data(Part):
    """Which images.

    Attributes:
        name: a data set that `dsf data list` shows, or folder:PATH.
        split: the images to learn from.
        size: which store, if there are several.
        limit: only so many images, by chance but always the same.
        evaluation_size: evaluate images of this side, instead of the stored one.
        resident: keep all images on the device, or stream them; auto: if they fit.
    """

    name: str = "cifar10"
    split: str = "train"
    size: PositiveInt | None = None
    limit: PositiveInt | None = None
    evaluation_size: PositiveInt | None = None
    resident: Switch = AUTO


class Encoder(Part):
    """The network that is kept.

    Attributes:
        name: of ``dsf.models.create_encoder``; auto: a small ResNet on a CPU, ResNet-18 with the
            CIFAR stem on a GPU.
        options: what else it takes; MoCo v3's transformers take the views' size by themselves.
    """

    name: str = "resnet18"
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.name not in (*ENCODERS, AUTO) and not self.name.startswith(
            ("timm/", "torchvision/")
        ):
            known = ", ".join((AUTO, *ENCODERS, "timm/NAME", "torchvision/NAME"))
            raise ValueError(f"encoder.name: must be one of {known}; got {self.name!r}")
        if self.name == AUTO and self.options:
            raise ValueError("encoder.options: an automatic encoder takes none; name one")
        return self


class BatchNorm(Part):
    """What BatchNorm, in encoder and heads, takes for a batch.

    Attributes:
        splits: statistics for each of so many groups of the batch of all processes. Several
            processes have the same groups as one if it is a multiple of processes x views that an
            encoder sees at once: those of a side, for SimCLR all.
        sync: one group, over all processes (CUDA only).
    """

    splits: PositiveInt = 8
    sync: bool = False

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.sync and self.splits > 1:
            raise ValueError(
                "batch_norm.sync: one group over all processes needs batch_norm.splits=1; "
                f"got {self.splits} splits"
            )
        return self


class Loss(Part):
    """The loss; see ``dsf.losses``.

    Attributes:
        name: its kind.
        temperature: by default 1 for DSF, 0.1 for losses of cosines.
        queue: K, keys in the memory bank: for MoCo; 0 for the other methods.
        contrast: InfoNCE or the decoupled one.
        block_size: compute the logits in pieces of so many negatives, or never so (null); by
            default if there are more than 2^26 of them.
        pooling: of the poly-view loss.
        mode: how DSF reads the paper: its code, a true divergence, or its text word for word.
        shrink: lambda, which keeps kappa finite.
        estimator: of kappa.
        queue_kappa: of the keys in the queue: their own, or the mean of the batch.
        divergence: minus which is the similarity; others than kl go with mode exact.
        alpha: the order of renyi.
        detach_resultant: no gradient through kappa.
    """

    name: Literal["dsf", "cosine", "loss-average", "feature-average", "poly-view"] = "dsf"
    temperature: PositiveFloat | None = None
    queue: NonNegativeInt = 4096
    contrast: Literal["infonce", "dcl"] = "infonce"
    block_size: PositiveInt | Literal["auto"] | None = AUTO
    pooling: Pooling = "geometric"
    mode: Mode = "paper"
    shrink: Annotated[float, Field(gt=0, le=1)] = 0.95
    estimator: Estimator = "banerjee"
    queue_kappa: QueueKappa = "stored"
    divergence: Divergence = "kl"
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    detach_resultant: bool = False

    @property
    def usual_temperature(self) -> float:
        """What the temperature is where none is given."""
        return 1.0 if self.name == "dsf" else 0.1

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        try:
            DSFSimilarity(self.mode, self.shrink, self.estimator, self.divergence, self.alpha)
        except ValueError as error:
            raise ValueError(f"loss: {error}") from None
        if isinstance(self.block_size, int) and self.divergence != "kl":
            raise ValueError("loss.block_size: goes with loss.divergence=kl only")
        return self


class Momentum(Part):
    """The key encoder of MoCo and MoCo v3.

    Attributes:
        value: how much of itself it keeps in a step.
        schedule: constant, or rising to 1 by a half cosine until the end.
        symmetric: MoCo contrasts both ways.
        shuffle: in which order MoCo encodes keys.
    """

    value: Fraction = 0.99
    schedule: Literal["constant", "cosine"] = "constant"
    symmetric: bool = False
    shuffle: Shuffle = "global"


class Optimiser(Part):
    """The optimiser.

    Attributes:
        name: its kind.
        lr: its learning rate, at its highest.
        base_lr: in its place the rate for 256 images a step: lr is then base_lr x batch_size / 256,
            and stands beside it in config.yaml.
        weight_decay: how strongly weights are drawn to zero.
        decay_all: biases and the parameters of norms too.
        momentum: of SGD and LARS.
        betas: of AdamW.
        trust: LARS's coefficient.
    """

    name: Literal["sgd", "lars", "adamw"] = "sgd"
    lr: Annotated[float, Field(gt=0, le=_MOST)] = 0.06
    base_lr: Annotated[float, Field(gt=0, le=_MOST)] | None = None
    weight_decay: Annotated[float, Field(ge=0, le=_MOST)] = 5e-4
    decay_all: bool = False
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (
        0.9,
        0.999,
    )
    trust: PositiveFloat = 1e-3


class Schedule(Part):
    """The learning rate over time.

    Attributes:
        name: cosine falls to ``final``, constant stays.
        warmup_epochs: it rises from 0 in so many epochs.
        final: the end, as a part of the highest.
        per: changes at every step or only with an epoch.
    """

    name: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: NonNegativeFloat = 0.0
    final: Fraction = 0.0
    per: Literal["step", "epoch"] = "step"


class Checkpoint(Part):
    """When the state is saved; at the end it always is.

    Attributes:
        minutes: when so many have passed since the last.
        steps: every so many steps too.
        keep: how many of them, the newest.
    """

    minutes: PositiveFloat = 2.0
    steps: PositiveInt | None = None
    keep: PositiveInt = 2


class KNN(Part):
    """The monitor: k nearest neighbours, by a weighted vote.

    Attributes:
        every: so many epochs, and at the end; 0: never.
        k: neighbours, or all training images if there are fewer.
        temperature: of the vote.
    """

    every: NonNegativeInt = 5
    k: PositiveInt = 200
    temperature: PositiveFloat = 0.1


class Settings(Part):
    """All settings of a run.

    Attributes:
        recipe: where they come from.
        seed: of weights, order and views.
        epochs: passes over the images.
        batch_size: images a step, over all processes.
        accumulate: in how many pieces a step is computed. Each piece contrasts within itself:
            in-batch negatives become fewer, and only a queue's do not.
        method: the training objective.
        head: the projection head, of ``dsf.models.create_head``.
        predictor: MoCo v3's second head.
        hidden: width of the heads, if not their own.
        dimension: of the projections.
        device: cpu or cuda; auto: cuda where there is one.
        precision: of the encoder; heads and loss have at least fp32 (heads beside bf16, TF32).
            auto: bf16 on a GPU.
        compile: encoders, loss and views; auto: on a GPU.
        graph: record the whole step as a CUDA graph; auto: where compiled, with one process.
        deterministic: the same bits in every run on one machine, at some cost.
        autotune: let cuDNN try its algorithms; auto: unless deterministic.
        log_every: steps between lines of metrics.
        tensorboard: also write for TensorBoard.
        wandb: also send to this project of Weights & Biases.
    """

    recipe: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    epochs: PositiveInt = 250
    batch_size: PositiveInt = 256
    accumulate: PositiveInt = 1
    method: Literal["moco", "simclr", "mocov3"] = "moco"
    head: str = "mlp-bn"
    predictor: str = "mocov3-predictor"
    hidden: PositiveInt | None = None
    dimension: Annotated[int, Field(ge=2)] = 128
    data: Data = Data()
    views: Views = Views()
    encoder: Encoder = Encoder()
    batch_norm: BatchNorm = BatchNorm()
    loss: Loss = Loss()
    momentum: Momentum = Momentum()
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "bf16", "fp32", "fp64"] = "auto"
    compile: Switch = AUTO
    graph: Switch = AUTO
    deterministic: bool = False
    autotune: Switch = AUTO
    log_every: PositiveInt = 50
    checkpoint: Checkpoint = Checkpoint()
    knn: KNN = KNN()
    tensorboard: bool = False
    wandb: str | None = None

    @field_validator("head", "predictor")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in HEADS:
            raise ValueError(f"must be one of {', '.join(HEADS)}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _scale_rate(cls, values: Any) -> Any:
        """The learning rate of a base rate, unless it is given too, as in a config.yaml."""
        try:
            optimiser = values["optimiser"]
            if isinstance(optimiser, Optimiser):
                optimiser = optimiser.model_dump(exclude_unset=True)
            if optimiser.get("lr") is not None:
                return values
            batch_size = values.get("batch_size", cls.model_fields["batch_size"].default)
            lr = scaled_rate(float(optimiser["base_lr"]), int(batch_size))
        except (AttributeError, KeyError, TypeError, ValueError):
            return values  # there is none, or the check of its field will say what is wrong
        return {**values, "optimiser": {**optimiser, "lr": lr}}

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        check_rate(self)
        check_patches(self)
        if self.method == "moco" and self.loss.queue == 0:
            raise ValueError("loss.queue: moco needs a queue of keys, say 4096; got 0")
        if self.method != "moco" and self.loss.queue > 0:
            raise ValueError(
                f"loss.queue: {self.method} takes its negatives from the batch, so it must be 0; "
                f"got {self.loss.queue}"
            )
        if self.loss.name == "cosine" and self.views.total != 2:
            which = "count" if self.views.count != 2 else "local.count"
            raise ValueError(
                f"views.{which}: loss.name=cosine takes 2 views; got {self.views.total} "
                "(the other losses take more)"
            )
        if self.schedule.warmup_epochs > self.epochs:
            raise ValueError(
                f"schedule.warmup_epochs: must be at most epochs, {self.epochs}; "
                f"got {self.schedule.warmup_epochs:g}"
            )
        if self.deterministic and self.autotune is True:
            raise ValueError("autotune: true contradicts deterministic=true: leave one out")
        check_batch(self, processes=1)
        return self


def check_batch(settings: Settings, processes: int) -> None:
    """Raise ``ValueError`` where processes, pieces or splits do not divide the batch."""
    pieces = processes * settings.accumulate
    if settings.batch_size % pieces:
        parts = f"{processes} processes" if settings.accumulate == 1 else f"{pieces} pieces"
        raise ValueError(
            f"batch_size: must be a multiple of the {parts} (processes x accumulate) it is "
            f"divided into; got {settings.batch_size}"
        )
    if settings.batch_norm.sync:
        return
    if settings.batch_norm.splits % processes:
        raise ValueError(
            f"batch_norm.splits: must be a multiple of the {processes} processes, so that a split "
            f"falls whole to one of them, or 1 with batch_norm.sync=true; "
            f"got {settings.batch_norm.splits}"
        )
    images = settings.batch_size // settings.accumulate
    side = settings.views.count // (1 if settings.method == "simclr" else 2)
    for kind, count in (("", side), ("local ", settings.views.local.count)):
        group, rest = divmod(images * count, settings.batch_norm.splits)
        if count and (rest or group < 2):
            raise ValueError(
                f"batch_norm.splits: must divide the {images * count} {kind}views ({images} images "
                f"x {count}) that an encoder sees at a time into groups of at least 2; "
                f"got {settings.batch_norm.splits}"
            )
