"""The images of a split, wherever they lie: whole on a device, or batch by batch from the disk."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dsf.data.source import Bytes, Integers

Device = torch.device | str


class Batch(NamedTuple):
    """Some images of a split.

    Args:
        samples: (B,) int64, their indices in the split.
        images: (B, 3, H, W) uint8, channels last in memory.
    """

    samples: Tensor
    images: Tensor


class Split:
    """A split of a data set.

    Args:
        name: ``"train"``, say.
        shards: the images, each (n, H, W, 3) in uint8; memory maps will do.
        labels: (N,), or None without labels.
        sizes: (N, 2), heights and widths before the images were squashed to a square, or None.
        classes: the names of the classes.
    """

    def __init__(
        self,
        name: str,
        shards: Sequence[Bytes],
        labels: Integers | None = None,
        sizes: Integers | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.classes = tuple(classes)
        self._shards = list(shards)
        self._labels = labels
        self._sizes = sizes
        self._ends = np.cumsum([len(shard) for shard in self._shards])

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
            if device.type == "cpu":
                part.numpy()[...] = shard
            else:
                # A copy, since torch takes no read-only array: one shard at a time is little.
                part.copy_(torch.from_numpy(np.array(shard)))
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

    def gather(self, indices: Tensor, pin: bool = False) -> Tensor:
        """Some images as (B, 3, H, W) on the CPU, channels last; pinned memory copies faster."""
        positions = indices.cpu().numpy()
        if positions.size and not 0 <= positions.min() <= positions.max() < len(self):
            raise ValueError(
                f"indices must be in [0, {len(self)}); got {positions.min()} to {positions.max()}"
            )
        shape = (len(positions), *self._shards[0].shape[1:])
        result = torch.empty(shape, dtype=torch.uint8, pin_memory=pin)
        target = result.numpy()
        shards = np.searchsorted(self._ends, positions, side="right")
        for number in np.unique(shards):
            rows = np.flatnonzero(shards == number)
            shard = self._shards[number]
            target[rows] = shard[positions[rows] - (self._ends[number] - len(shard))]
        return result.permute(0, 3, 1, 2)

    def stream(
        self, batches: Iterable[Tensor], device: Device = "cpu", ahead: int = 4
    ) -> Iterator[Batch]:
        """Batches of the given indices on the device, for images that do not fit on it.

        Threads gather the next ``ahead`` batches meanwhile. On CUDA they fill pinned memory, which
        torch takes back only once the copy is done.
        """
        if ahead < 1:
            raise ValueError(f"ahead must be >= 1; got {ahead}")
        device = torch.device(device)
        pin = device.type == "cuda"
        waiting: deque[tuple[Tensor, Future[Tensor]]] = deque()

        def first() -> Batch:
            samples, images = waiting.popleft()
            return Batch(
                samples.to(device, non_blocking=True),
                images.result().to(device, non_blocking=True),
            )

        with ThreadPoolExecutor(ahead, thread_name_prefix="dsf-gather") as pool:
            for samples in batches:
                waiting.append((samples, pool.submit(self.gather, samples, pin)))
                if len(waiting) > ahead:
                    yield first()
            while waiting:
                yield first()
