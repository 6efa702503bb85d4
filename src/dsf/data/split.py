"""The images of a split, wherever they lie: whole on a device, or batch by batch from the disk."""

from collections.abc import Generator, Iterable, Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from dsf.data.rows import Shard, copy_rows
from dsf.data.source import Integers
from dsf.data.stream import Batch, stream

Device = torch.device | str


class Split:
    """A split of a data set.

    Args:
        name: ``"train"``, say.
        shards: the images, each (n, H, W, 3) in uint8: arrays, or what a ``Store`` has.
        labels: (N,), or None without labels.
        sizes: (N, 2), heights and widths before the images were squashed to a square, or None.
        classes: the names of the classes.
        sha256: of all images, where it is known.
    """

    def __init__(
        self,
        name: str,
        shards: Sequence[Shard],
        labels: Integers | None = None,
        sizes: Integers | None = None,
        classes: Sequence[str] = (),
        sha256: str | None = None,
    ) -> None:
        self.name, self.sha256 = name, sha256
        self.classes = tuple(classes)
        self._shards = list(shards)
        self._labels = labels
        self._sizes = sizes
        self._ends = np.cumsum([len(shard) for shard in self._shards])

    @classmethod
    def of_tensors(cls, images: Tensor, labels: Tensor | None = None, name: str = "train") -> Self:
        """A split of images in memory.

        Args:
            images: (N, 3, S, S) uint8.
            labels: (N,) integers, if any.
            name: of the split.
        """
        for what, value in (("images", images), ("labels", labels)):
            if not isinstance(value, Tensor) and value is not None:
                raise ValueError(
                    f"{what} must be a tensor; got {type(value).__name__}, of which torch.tensor "
                    "makes one"
                )
        if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
            raise ValueError(
                "images must be uint8 of shape (N, 3, S, S); "
                f"got {images.dtype} of shape {tuple(images.shape)}"
            )
        count, _, height, width = images.shape
        if height != width or not count:
            raise ValueError(f"images must be square, and some; got {tuple(images.shape)}")
        if labels is not None and (labels.shape != (count,) or labels.is_floating_point()):
            raise ValueError(
                f"labels must be integers of shape {(count,)}; "
                f"got {labels.dtype} of shape {tuple(labels.shape)}"
            )
        pixels = images.detach().cpu().permute(0, 2, 3, 1).contiguous().numpy()
        numbers = None if labels is None else labels.detach().cpu().to(torch.int64).numpy()
        return cls(name, [pixels], numbers)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __repr__(self) -> str:
        return f"Split({self.name!r}, {len(self):,} images of {self.image_size} pixels)"

    @property
    def image_size(self) -> int:
        """The side of the square images."""
        return int(self._shards[0].shape[1])

    @property
    def nbytes(self) -> int:
        """The memory that ``images`` takes."""
        return sum(shard.nbytes for shard in self._shards)

    @property
    def labelled(self) -> bool:
        """Whether there are labels."""
        return self._labels is not None

    def images(self, device: Device = "cpu") -> Tensor:
        """All images as one uint8 tensor (N, 3, H, W), channels last in memory."""
        device = torch.device(device)
        shape = (len(self), *self._shards[0].shape[1:])
        result = torch.empty(shape, dtype=torch.uint8, device=device)
        for shard, end in zip(self._shards, self._ends, strict=True):
            part = result[int(end) - len(shard) : int(end)]
            here = part if device.type == "cpu" else torch.empty(shard.shape, dtype=torch.uint8)
            rows = np.arange(len(shard))
            copy_rows(shard, rows, here.numpy(), rows)
            if here is not part:
                part.copy_(here)
        return result.permute(0, 3, 1, 2)

    def labels(self, device: Device = "cpu") -> Tensor:
        """The labels, int64 (N,)."""
        if self._labels is None:
            raise ValueError(f"split {self.name!r} has no labels")
        return torch.tensor(self._labels, dtype=torch.int64, device=device)

    def sizes(self, device: Device = "cpu") -> Tensor | None:
        """The original heights and widths, int64 (N, 2), if the images were squashed."""
        if self._sizes is None:
            return None
        return torch.tensor(self._sizes, dtype=torch.int64, device=device)

    def gather(self, indices: Tensor) -> Tensor:
        """Some images as (B, 3, H, W) on the CPU, channels last."""
        shape = (len(indices), *self._shards[0].shape[1:])
        images = torch.empty(shape, dtype=torch.uint8)
        self._read(indices, images)
        return images.permute(0, 3, 1, 2)

    def stream(
        self, batches: Iterable[Tensor], device: Device = "cpu", ahead: int = 4
    ) -> Generator[Batch, None, None]:
        """Batches of the given indices on the device, for images that do not fit on it.

        Threads read the next ``ahead`` batches meanwhile; see ``dsf.data.stream``.
        """
        device = torch.device(device)
        return stream(
            (batch.cpu() for batch in batches), self._read, self.image_size, device, ahead
        )

    def _read(self, indices: Tensor, images: Tensor) -> None:
        """Copy some images to (B, H, W, 3); any number of threads may."""
        positions = indices.cpu().numpy()
        if positions.size and not 0 <= positions.min() <= positions.max() < len(self):
            raise ValueError(
                f"indices must be in [0, {len(self)}); got {positions.min()} to {positions.max()}"
            )
        target = images.numpy()
        shards = np.searchsorted(self._ends, positions, side="right")
        for number in np.unique(shards):
            places = np.flatnonzero(shards == number)
            shard = self._shards[number]
            rows = positions[places] - (self._ends[number] - len(shard))
            copy_rows(shard, rows, target, places)
