"""From settings to what they describe: encoder, loss, method, views, optimiser."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from dsf import distributed, losses
from dsf.data import Batches, EpochSampler, Split, load
from dsf.data.augment import MultiCrop, Recipe, TwoSides
from dsf.data.augment import Views as ViewMaker
from dsf.data.batches import room
from dsf.data.registry import EMBEDDED, SeveralSizesError, find
from dsf.experiments.checks import PATCHES, check_count
from dsf.experiments.recipe import make_settings
from dsf.experiments.settings import AUTO, Settings
from dsf.losses import ContrastiveLoss
from dsf.methods import Method, MoCo, MoCoV3, SimCLR
from dsf.models import create_encoder, split_batch_norm
from dsf.random import some
from dsf.training import Schedule, create_optimiser, parameter_groups
from dsf.training.numerics import DTYPES


def load_split(settings: Settings, name: str) -> Split:
    """A split of the settings' data set."""
    try:
        return load(settings.data.name, name, settings.data.size)
    except SeveralSizesError as error:
        raise ValueError(error.explain(f"data.size={error.newest}")) from None


def resolve(settings: Settings, images: Split | None = None) -> Settings:
    """Decide whatever is "auto", for this machine and these images."""
    available = torch.cuda.is_available()
    if settings.device == "cuda" and not available:
        raise ValueError("device: there is no CUDA device here; got 'cuda', take auto or cpu")
    device = settings.device
    if device == AUTO:
        device = "cuda" if available else "cpu"
    values = settings.model_dump()
    values["device"] = device
    if settings.precision == AUTO:
        values["precision"] = "bf16" if device == "cuda" else "fp32"
    if settings.compile == AUTO:
        values["compile"] = device == "cuda"
    alone = device == "cuda" and distributed.launched()[1] == 1
    if settings.graph is True and not alone:
        raise ValueError("graph: a CUDA graph needs a GPU and one process; take auto or false")
    if settings.graph == AUTO:
        values["graph"] = alone and values["compile"]
    if settings.autotune == AUTO:
        values["autotune"] = not settings.deterministic
    if settings.loss.temperature is None:
        values["loss"]["temperature"] = settings.loss.usual_temperature
    if settings.encoder.name == AUTO:
        large = {"name": "resnet18", "options": {"stem": "cifar"}}
        values["encoder"] = large if device == "cuda" else {"name": "resnet-small", "options": {}}
    if settings.encoder.name.startswith(PATCHES):
        values["encoder"]["options"].setdefault("image_size", settings.views.size)
    if settings.data.size is None and images is not None and _in_sizes(settings.data.name):
        values["data"]["size"] = images.image_size  # there may be others by tomorrow
    if settings.data.resident == AUTO and images is not None:
        values["data"]["resident"] = images.nbytes <= room(distributed.place(device))
    return make_settings(values)


def _in_sizes(name: str) -> bool:
    return name != EMBEDDED and find(name).resizable


def build_method(settings: Settings, steps: int = 1) -> Method:
    """The method on the CPU, freshly initialised by the seed.

    Args:
        settings: resolved ones.
        steps: of the whole training, for a momentum that rises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        method = _method(settings, steps)
    processes = distributed.world_size()
    if settings.batch_norm.sync and processes > 1:
        if settings.device == "cpu":
            raise ValueError("batch_norm.sync: torch's SyncBatchNorm needs GPUs; use splits")
        return nn.SyncBatchNorm.convert_sync_batchnorm(method)  # type: ignore[no-any-return]
    splits = settings.batch_norm.splits // processes
    return split_batch_norm(method, splits) if splits > 1 else method


def check_local_views(settings: Settings) -> None:
    """Raise ``ValueError`` where the encoder takes no images of the local views' size."""
    size = settings.views.local.size
    if settings.views.local.count == 0:
        return
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        encoder = _encoder(settings).eval()
        try:
            encoder(torch.zeros(1, 3, size, size))
        except (AssertionError, RuntimeError) as error:
            fixed = getattr(getattr(encoder, "patch_embed", None), "strict_img_size", False)
            raise ValueError(
                f"views.local.size: {settings.encoder.name} takes no images of {size} pixels: "
                f"{error}" + (" Try encoder.options={dynamic_img_size: true}" if fixed else "")
            ) from error


def encoder_options(settings: Settings) -> dict[str, Any]:
    """With what the encoder of resolved settings is made."""
    options = dict(settings.encoder.options)
    if settings.views.local.count and settings.encoder.name.startswith("mocov3-vit"):
        options = {"dynamic_img_size": True} | options  # positions are interpolated
    return options


def _encoder(settings: Settings) -> nn.Module:
    try:
        return create_encoder(settings.encoder.name, **encoder_options(settings))
    except ValueError as error:
        raise ValueError(f"encoder: {error}") from error


def _method(settings: Settings, steps: int) -> Method:
    encoder = _encoder(settings)
    loss = build_loss(settings)
    heads: dict[str, Any] = {
        "projector": settings.head,
        "dimension": settings.dimension,
        "hidden": settings.hidden,
    }
    if settings.method == "simclr":
        return SimCLR(encoder, loss, **heads)
    momentum: dict[str, Any] = {
        "momentum": settings.momentum.value,
        "momentum_steps": steps if settings.momentum.schedule == "cosine" else None,
    }
    if settings.method == "mocov3":
        return MoCoV3(encoder, loss, predictor=settings.predictor, **heads, **momentum)
    return MoCo(
        encoder,
        loss,
        symmetric=settings.momentum.symmetric,
        shuffle=settings.momentum.shuffle,
        seed=settings.seed,
        **heads,
        **momentum,
    )


def build_loss(settings: Settings) -> ContrastiveLoss[Any]:
    """The loss; negatives come from all processes."""
    chosen = settings.loss
    options: dict[str, Any] = {
        "memory_bank_size": (chosen.queue, settings.dimension) if chosen.queue else 0,
        "gather_distributed": distributed.world_size() > 1,
        "contrast": chosen.contrast,
        "in_batch": "cross" if settings.method == "mocov3" else "both",
        "block_size": chosen.block_size,
    }
    if chosen.temperature is not None:
        options["temperature"] = chosen.temperature
    if chosen.name == "cosine":
        return losses.CosineLoss(**options)
    if chosen.name == "feature-average":
        return losses.FeatureAverage(**options)
    if chosen.name == "loss-average":
        return losses.LossAverage(views=settings.views.count // 2, **options)
    if chosen.name == "poly-view":
        return losses.PolyView(chosen.pooling, views=settings.views.count // 2, **options)
    return losses.DSFLoss(
        mode=chosen.mode,
        shrink=chosen.shrink,
        estimator=chosen.estimator,
        queue_kappa=chosen.queue_kappa,
        divergence=chosen.divergence,
        alpha=chosen.alpha,
        detach_resultant=chosen.detach_resultant,
        **options,
    )


def place(method: Method, settings: Settings, device: torch.device) -> Method:
    """Move a method to its device, in its precision and memory format, compiled where asked."""
    method = method.to(device)
    if settings.precision == "fp64":
        method = method.double()
    encoders = [method.encoder, *filter(None, [getattr(method, "key_encoder", None)])]
    for encoder in encoders:
        if device.type == "cuda":
            encoder.to(memory_format=torch.channels_last)
        if settings.compile:
            encoder.compile(dynamic=False)
    # With several processes the loss gathers from all, which a graph cannot hold.
    if settings.compile and distributed.world_size() == 1:
        method.loss.compile(dynamic=False)
    return method


def view_recipe(settings: Settings) -> Recipe:
    """The recipe of the first half of the views, whose normalisation evaluation shares."""
    return settings.views.recipes()[0]


def build_views(settings: Settings, device: torch.device) -> nn.Module:
    """What makes the views on the device."""
    chosen = settings.views
    dtype = DTYPES[settings.precision]

    def side(recipe: Recipe, size: int) -> ViewMaker:
        return ViewMaker(recipe, size, settings.seed, chosen.exact, dtype)

    sides = [side(recipe, chosen.size) for recipe in chosen.recipes()]
    whole = TwoSides(*sides) if len(sides) == 2 else sides[0]
    views: nn.Module = whole
    if chosen.local.count:
        local = side(chosen.local_recipe(), chosen.local.size)
        views = MultiCrop(whole, local, chosen.local.count)
    views = views.to(device)
    if settings.compile:
        views.compile(dynamic=False)
    return views


def build_batches(settings: Settings, split: Split, device: torch.device) -> Batches:
    """This process's share of the batches."""
    limit = settings.data.limit
    rows = None if limit is None else some(len(split), limit)
    size = len(split) if rows is None else len(rows)
    check_count(settings, size)
    resident = settings.data.resident is True
    sampler = EpochSampler(
        size,
        settings.batch_size // distributed.world_size(),
        settings.seed,
        device=device if resident else "cpu",
    )
    return Batches(split, sampler, device, resident, rows)


def build_optimiser(settings: Settings, method: Method) -> Optimizer:
    """The optimiser of the method's parameters."""
    chosen = settings.optimiser
    groups = parameter_groups(method, chosen.weight_decay, chosen.decay_all)
    return create_optimiser(
        chosen.name, groups, chosen.lr, chosen.momentum, chosen.betas, chosen.trust
    )


def build_schedule(settings: Settings, steps_per_epoch: int) -> Schedule:
    """The learning rate of every step."""
    chosen = settings.schedule
    return Schedule(
        settings.optimiser.lr,
        settings.epochs * steps_per_epoch,
        steps_per_epoch,
        round(chosen.warmup_epochs * steps_per_epoch),
        chosen.final,
        chosen.name,
        chosen.per,
    )
