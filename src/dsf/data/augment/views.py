"""Many views of each image, made in one batch where the images live."""

from functools import partial

import torch
from torch import Tensor, nn

from dsf.data.augment import geometry, resample
from dsf.data.augment.blur import box_reach, box_weights, gaussian_blur
from dsf.data.augment.colour import grayscale, jitter
from dsf.data.augment.fixed import per_view
from dsf.data.augment.levels import solarize
from dsf.data.augment.parameters import Draw, Parameters
from dsf.data.augment.planes import Planes, apply_where
from dsf.data.augment.randaugment import RandAugment, is_geometric
from dsf.data.augment.recipe import Recipe, find_recipe


class Views(nn.Module):
    """Augment a batch of images, M views each, with parameters of their own.

    The order is torchvision's, with PIL's arithmetic on 8-bit levels: random resized crop,
    RandAugment, colour jitter, grayscale, blur, solarize, flip, normalisation. The result is a
    pure function of (seed, epoch, sample, view) and the image: the same bits in every batch, on
    every rank and device, in eager mode and compiled.

    Each operation sees what torchvision's would: the crop is PIL's (to the bit where it enlarges,
    within a level where it shrinks), and RandAugment's shears, translations and rotations take the
    nearest pixel of it. With ``exact=False`` crop, flip and these movements are one resampling,
    bilinear like the crop; without RandAugment the two forms are the same. It changes:

    - moved pixels are interpolated from the stored image, not copied from the resized crop;
    - of two movements the second may bring back what the first moved out of the view;
    - if RandAugment draws a colour operation and then a movement, the colour operation comes
      second, so that the mean, extremes or histogram it looks at include the black border and
      leave out what moved away. The border stays black.

    Args:
        recipe: a ``Recipe`` or the name of one: "cifar", "mocov3-1", "mocov3-2".
        size: height and width of the views.
        seed: 64 bits.
        exact: whether to keep RandAugment's geometry apart from the crop.
        dtype: of the views.
    """

    positions: Tensor

    def __init__(
        self,
        recipe: str | Recipe = "cifar",
        size: int = 32,
        seed: int = 0,
        exact: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if not 4 <= size <= 4096:
            raise ValueError(f"size must be in [4, 4096]; got {size}")
        if not dtype.is_floating_point:
            raise ValueError(f"dtype must be a floating-point type; got {dtype}")
        self.recipe = find_recipe(recipe)
        self.size, self.seed, self.exact, self.dtype = size, seed, exact, dtype
        self.fused = not exact and self.recipe.randaugment > 0  # else there is nothing to fuse
        self.draw = Draw(self.recipe, seed)
        self.randaugment = RandAugment(self.recipe, size)
        self.register_buffer("positions", torch.arange(size), persistent=False)

    def forward(
        self,
        images: Tensor,
        samples: Tensor,
        epoch: Tensor | int,
        view_ids: Tensor,
        sizes: Tensor | None = None,
    ) -> Tensor:
        """Views of images.

        Args:
            images: (B, 3, H, W) uint8, with any strides.
            samples: (B,) int64, the place of each image in its data set, below 2^32.
            epoch: an integer, or one as a tensor without dimensions; in a compiled step a tensor,
                or else every epoch compiles anew.
            view_ids: (M,) int64, which views to make.
            sizes: (B, 2) integers, the original height and width where images were squashed to
                H x W; crops are drawn in the original geometry.

        Returns:
            (B, M, 3, size, size) of ``dtype``, as encoders are fastest with it: on a GPU
            ``flatten(0, 1)`` of it is a channels_last view, on a CPU all of it is contiguous.
        """
        return _joined([self.scaled_planes(images, samples, epoch, view_ids, sizes)])

    def scaled_planes(
        self,
        images: Tensor,
        samples: Tensor,
        epoch: Tensor | int,
        view_ids: Tensor,
        sizes: Tensor | None,
    ) -> Planes:
        """The channels of ``forward``, (B, M, size, size) each."""
        self._check(images, samples, epoch, view_ids, sizes)
        if not isinstance(epoch, Tensor):
            epoch = torch.full((), epoch, dtype=torch.int64, device=images.device)
        if sizes is None:
            height, width = images.shape[-2:]
            sizes = torch.stack([torch.full_like(samples, x) for x in (height, width)], dim=-1)
        sizes = sizes.to(torch.int64)
        parameters = self.draw(samples, epoch, view_ids, sizes)
        sizes = sizes[:, None].expand(-1, view_ids.shape[0], -1).flatten(0, 1)
        planes = self.apply_to(images, parameters, sizes)
        red, green, blue = (
            self._scaled(plane, channel).unflatten(0, (*samples.shape, *view_ids.shape))
            for channel, plane in enumerate(planes)
        )
        return red, green, blue

    def apply_to(self, images: Tensor, parameters: Parameters, sizes: Tensor) -> Planes:
        """The views as (V, size, size) planes of levels; ``sizes`` is (V, 2) int64."""
        recipe = self.recipe
        make = self._at_once if self.fused else self._separately
        planes = make(images, parameters, sizes)
        if recipe.jitter > 0:
            planes = jitter(planes, parameters, recipe)
        if recipe.grayscale > 0:
            planes = apply_where(parameters.grayscale, grayscale, planes)
        if recipe.blur > 0:
            box = box_weights(parameters.radius, box_reach(recipe.blur_radius[1]))
            planes = apply_where(parameters.radius > 0, gaussian_blur, planes, box)
        if recipe.solarize > 0:
            threshold = torch.full_like(parameters.radius, recipe.solarize_threshold)
            planes = apply_where(parameters.solarize, solarize, planes, threshold)
        if not self.fused:
            planes = apply_where(parameters.flip, geometry.flip, planes)
        return planes

    def _scaled(self, plane: Tensor, channel: int) -> Tensor:
        # Levels less the mean, by the deviation.
        mean, std = self.recipe.mean[channel], self.recipe.std[channel]
        centred = plane.to(torch.float32).sub_(255 * mean)
        return centred.mul_(1 / (255 * std)).to(self.dtype)

    def _separately(self, images: Tensor, parameters: Parameters, sizes: Tensor) -> Planes:
        planes = resample.crop(images, parameters, sizes, self.positions)
        if self.recipe.randaugment > 0:
            positions = self.positions.to(torch.int32)
            for operation, negative in self._operations(parameters):
                matrix = geometry.as_double(self.randaugment.matrix(operation, negative))
                move = partial(geometry.nearest, positions=positions)
                planes = apply_where(is_geometric(operation), move, planes, matrix)
                planes = self.randaugment.colour(planes, operation, negative, self.positions)
        return planes

    def _at_once(self, images: Tensor, parameters: Parameters, sizes: Tensor) -> Planes:
        matrix = geometry.flip_matrix(parameters.flip, self.size)
        operations = self._operations(parameters)
        for operation, negative in reversed(operations):
            moved = geometry.as_double(self.randaugment.matrix(operation, negative))
            matrix = geometry.compose(moved, matrix)
        positions = self.positions.to(torch.int32)
        planes, inside = resample.crop_affine(images, parameters, sizes, matrix, positions)
        for place, (operation, negative) in enumerate(operations):
            planes = self.randaugment.colour(planes, operation, negative, self.positions)
            if place + 1 < len(operations):
                later = torch.stack([o for o, _ in operations[place + 1 :]])
                moved_later = is_geometric(later).any(0)
                border = per_view(moved_later) & ~inside
                red, green, blue = (torch.where(border, 0, plane) for plane in planes)
                planes = red, green, blue
        return planes

    def _operations(self, parameters: Parameters) -> list[tuple[Tensor, Tensor]]:
        operations, negative = parameters.operations.unbind(-1), parameters.negative.unbind(-1)
        return list(zip(operations, negative, strict=True))

    def _check(
        self,
        images: Tensor,
        samples: Tensor,
        epoch: Tensor | int,
        view_ids: Tensor,
        sizes: Tensor | None,
    ) -> None:
        if images.dim() != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
            raise ValueError(
                "images must be uint8 of shape (B, 3, H, W); "
                f"got {images.dtype} of shape {tuple(images.shape)}"
            )
        batch = images.shape[0]
        _check_integers("samples", samples, (batch,), images.device)
        _check_integers("view_ids", view_ids, (view_ids.numel(),), images.device)
        if isinstance(epoch, Tensor):
            _check_integers("epoch", epoch, (), images.device)
        elif not 0 <= epoch < 2**32:
            raise ValueError(f"epoch must be in [0, 2^32); got {epoch}")
        if sizes is not None:
            _check_integers("sizes", sizes, (batch, 2), images.device)
        if 0 in images.shape or view_ids.numel() == 0:
            raise ValueError(
                "images and view_ids must not be empty; "
                f"got shapes {tuple(images.shape)} and {tuple(view_ids.shape)}"
            )
        largest = resample.MAX_SHRINK * self.size
        if self.fused and max(images.shape[-2:]) > largest:
            raise ValueError(
                f"images must be at most {resample.MAX_SHRINK} times as large as the views of "
                f"{self.size} pixels; got {tuple(images.shape[-2:])}: store them smaller, or use "
                "exact=True"
            )


class TwoSides(nn.Module):
    """Views of two kinds: the first half of ``view_ids`` by one recipe, the second by another.

    Args:
        first: makes the views of the queries.
        second: makes those of the keys, of the same size and dtype.
    """

    def __init__(self, first: Views, second: Views) -> None:
        super().__init__()
        if (first.size, first.dtype) != (second.size, second.dtype):
            raise ValueError(
                "first and second must have the same size and dtype; "
                f"got {(first.size, first.dtype)} and {(second.size, second.dtype)}"
            )
        self.first, self.second = first, second

    def forward(
        self,
        images: Tensor,
        samples: Tensor,
        epoch: Tensor | int,
        view_ids: Tensor,
        sizes: Tensor | None = None,
    ) -> Tensor:
        """As of ``Views``."""
        if view_ids.dim() != 1 or view_ids.shape[0] % 2:
            raise ValueError(
                f"view_ids must be one-dimensional and even in number; got {tuple(view_ids.shape)}"
            )
        sides = zip((self.first, self.second), view_ids.chunk(2), strict=True)
        return _joined(
            [side.scaled_planes(images, samples, epoch, ids, sizes) for side, ids in sides]
        )


def _joined(sides: list[Planes]) -> Tensor:
    # The views of all sides, (B, M, 3, size, size).
    if sides[0][0].device.type == "cpu":
        counts = [planes[0].shape[1] for planes in sides]
        batch, _, height, width = sides[0][0].shape
        result = sides[0][0].new_empty(batch, sum(counts), 3, height, width)
        for part, planes in zip(result.split(counts, dim=1), sides, strict=True):
            for channel, plane in enumerate(planes):
                part[:, :, channel] = plane
        return result
    pixels = [torch.stack(planes, dim=-1) for planes in sides]
    joined = pixels[0] if len(pixels) == 1 else torch.cat(pixels, dim=1)
    return joined.permute(0, 1, 4, 2, 3)


def _check_integers(
    name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device
) -> None:
    if tensor.shape != shape or tensor.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"{name} must be integers of shape {shape}; "
            f"got {tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    if tensor.device != device:
        raise ValueError(f"{name} must be on the images' device, {device}; got {tensor.device}")
