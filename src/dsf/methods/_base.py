"""What all methods share: views in, loss out, encoder kept."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dsf.losses import ContrastiveLoss, Diagnostics
from dsf.models import create_head, feature_dimension
from dsf.precision import without_autocast

Views = Tensor | Sequence[Tensor]


class MethodOutput(NamedTuple):
    """The loss, and detached scalars that say how training goes."""

    loss: Tensor
    diagnostics: Diagnostics


class Method(nn.Module, ABC):
    """A training objective: ``method(views)``, backward, optimiser, ``method.after_step()``.

    Args:
        encoder: (N, 3, H, W) images to (N, F) features: what is kept after training.
        loss: any loss of ``dsf.losses``.
        projector: a head by name (see ``dsf.models.create_head``) or as a module.
        dimension: of the projections, where the projector is a name.
        hidden: width of named heads, where theirs is not wanted.

    The encoder follows autocast; heads and loss compute in the heads' own precision, since a
    concentration magnifies small errors of direction.
    """

    step: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        loss: ContrastiveLoss[Any],
        projector: str | nn.Module,
        dimension: int,
        hidden: int | None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        if isinstance(projector, str):
            projector = create_head(projector, feature_dimension(encoder), dimension, hidden)
        self.projector = projector
        self.loss = loss
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    @abstractmethod
    def compute(self, views: Tensor, diagnose: bool, local: Tensor | None = None) -> MethodOutput:
        """The loss of (B, 2 m, 3, H, W) views, of which each half is a side, and of local ones."""

    def forward(
        self, views: Views, diagnose: bool = True, local: Views | None = None
    ) -> MethodOutput:
        """The loss of M = 2 m views an image; the halves become the two sides of the contrast.

        Args:
            views: (B, M, 3, H, W), or M tensors (B, 3, H, W).
            diagnose: also compute diagnostics.
            local: further views of the queries, of another resolution, in the same form
                (multi-crop: Caron et al., 2020). They are encoded apart, so that to BatchNorm they
                are a batch of their own, and no key is made of them.
        """
        views = as_images("views", views)
        if views.shape[1] % 2:
            raise ValueError(f"the number of views must be even, M = 2 m; got {views.shape[1]}")
        if local is None:
            return self.compute(views, diagnose)
        local = as_images("local", local)
        if len(local) != len(views):
            raise ValueError(
                f"views and local must be of the same images; got {len(views)} and {len(local)}"
            )
        return self.compute(views, diagnose, local)

    def project(self, images: Tensor) -> Tensor:
        """What the loss sees of (N, 3, H, W) images."""
        return head(self.projector, encode(self.encoder, images))

    @torch.no_grad()
    def after_step(self) -> None:
        """Call after each step of the optimiser."""
        self.step.add_(1)

    def contrast(
        self, out0: Tensor, out1: Tensor, diagnose: bool, update_queue: bool = True
    ) -> MethodOutput:
        """The loss of two sides of features."""
        if diagnose:
            return MethodOutput(*self.loss.with_diagnostics(out0, out1, update_queue))
        return MethodOutput(self.loss(out0, out1, update_queue), {})


def as_images(name: str, views: Views) -> Tensor:
    """Views as (B, M, 3, H, W)."""
    if not isinstance(views, Tensor):
        shapes = {tuple(view.shape) for view in views}
        if len(shapes) != 1:
            raise ValueError(f"{name} must be tensors of one shape; got {shapes or 'none'}")
        views = torch.stack(list(views), dim=1)
    if views.dim() != 5 or 0 in views.shape:
        raise ValueError(
            f"{name} must be (B, M, 3, H, W) or M tensors (B, 3, H, W), none empty; "
            f"got {tuple(views.shape)} as (B, M, 3, H, W)"
        )
    return views


def halves(views: Tensor) -> tuple[Tensor, Tensor]:
    """The two sides of (B, 2 m, ...) views or features."""
    first, second = views.chunk(2, dim=1)
    return first, second


def each_view(function: Callable[[Tensor], Tensor], views: Tensor) -> Tensor:
    """Apply a function of (N, ...) to (B, m, ...); the views of an image lie together."""
    flat = views.flatten(0, 1)
    # A side is copied of one view, too: code that is compiled for a layout then serves any number
    # of views. All views lie on a GPU as encoders take them.
    if not flat.is_contiguous(memory_format=torch.channels_last):
        flat = flat.contiguous()
    features = function(flat)
    return features.view(*views.shape[:2], -1)


def beside(features: Tensor, local: Tensor | None) -> Tensor:
    """The features of a side, (B, m, D), with those of the local views behind them, if any."""
    return features if local is None else torch.cat([features, local], dim=1)


def encode(encoder: nn.Module, images: Tensor) -> Tensor:
    """The encoder's features, (N, F)."""
    features = encoder(images)
    if not isinstance(features, Tensor) or features.dim() != 2:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(
            f"the encoder must map images (N, 3, H, W) to features (N, F); got {got} "
            f"for images of {tuple(images.shape)}"
        )
    return features


def encode_sides(encoder: nn.Module, views: Tensor) -> tuple[Tensor, Tensor]:
    """The features of both sides, (B, m, F) each.

    BatchNorm has to see each side apart. Without it the views go through the encoder at once:
    fewer and larger kernels, and no copy of them.
    """
    function = partial(encode, encoder)
    if any(isinstance(module, _BatchNorm) for module in encoder.modules()):
        first, second = halves(views)
        return each_view(function, first), each_view(function, second)
    return halves(each_view(function, views))


def head(module: nn.Module, features: Tensor) -> Tensor:
    """A head applied in its own precision."""
    parameter = next(module.parameters(), None)
    dtype = torch.float32 if parameter is None else parameter.dtype
    with without_autocast(features):
        result: Tensor = module(features.to(torch.promote_types(dtype, features.dtype)))
    return result
