"""Batches from the disk: threads read them ahead, and on CUDA they are copied ahead too."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

Fill = Callable[[Tensor, Tensor], None]
"""(indices, images) reads images of these indices into (B, H, W, 3) uint8, in any thread."""


class Batch(NamedTuple):
    """Some images of a split.

    Args:
        samples: (B,) int64, their indices in the split.
        images: (B, 3, H, W) uint8, channels last in memory.
    """

    samples: Tensor
    images: Tensor


def stream(
    batches: Iterable[Tensor], fill: Fill, side: int, device: torch.device, ahead: int
) -> Generator[Batch, None, None]:
    """Batches of the given indices on the device, in their order.

    ``ahead`` threads read the next ``ahead`` batches meanwhile, and nothing beyond. Closing the
    generator, or an error in it, ends them.

    Args:
        batches: indices, (B,) int64 on the CPU.
        fill: reads images.
        side: of the square images.
        device: where batches are wanted.
        ahead: how many batches to read ahead.
    """
    if ahead < 1:
        raise ValueError(f"ahead must be >= 1; got {ahead}")
    pool = ThreadPoolExecutor(ahead, thread_name_prefix="dsf-gather")
    try:
        if device.type == "cuda":
            yield from _to_cuda(iter(batches), fill, side, device, ahead, pool)
        else:
            yield from _to_cpu(iter(batches), fill, side, device, ahead, pool)
    finally:
        # Waits for those that are reading, so that nobody is left behind.
        pool.shutdown(cancel_futures=True)


def _to_cpu(
    batches: Iterator[Tensor],
    fill: Fill,
    side: int,
    device: torch.device,
    ahead: int,
    pool: ThreadPoolExecutor,
) -> Generator[Batch, None, None]:
    waiting: deque[tuple[Batch, Future[None]]] = deque()

    def first() -> Batch:
        batch, read = waiting.popleft()
        read.result()
        return Batch(*(part.to(device) for part in batch))

    for samples in batches:
        images = torch.empty((len(samples), side, side, 3), dtype=torch.uint8)
        read = pool.submit(fill, samples, images)
        waiting.append((Batch(samples, images.permute(0, 3, 1, 2)), read))
        if len(waiting) > ahead:
            yield first()
    while waiting:
        yield first()


# CUDA.
#
# host buffers, pinned    read into by threads        ahead + 2 of them
# device buffers          copied to on a side stream  2 of them
# the batch               cloned from a device buffer on the stream that computes
#
# A batch is thus its receiver's own, and nothing is overwritten before it was taken: a copy to a
# device buffer waits, on the device, for the clone before the last; a thread gets a host buffer
# when its copy is done. Through this chain the program can run ahead of the device by a few
# batches only, so memory stays bounded on either side.
#
# Threads touch no CUDA function: one that allocates would break a CUDA graph that is being
# recorded in the meantime.


class _Buffer:
    """Room for a batch, and when what was last done with it is done."""

    def __init__(self, device: torch.device | None) -> None:
        self._where: dict[str, Any] = {"pin_memory": True} if device is None else {"device": device}
        self._samples = self._images = torch.empty(0)
        # A host that waits for it sleeps meanwhile, instead of burning a core.
        self.done = torch.cuda.Event(blocking=True)

    def room(self, count: int, side: int) -> tuple[Tensor, Tensor]:
        """Samples and images (B, H, W, 3), the same memory whenever it is large enough."""
        if len(self._samples) < count:
            self._samples = torch.empty(count, dtype=torch.int64, **self._where)
            shape = (count, side, side, 3)
            self._images = torch.empty(shape, dtype=torch.uint8, **self._where)
        return self._samples[:count], self._images[:count]


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    # One for all streams of images: torch caches the memory of each CUDA stream apart.
    return torch.cuda.Stream(device)


def _to_cuda(
    batches: Iterator[Tensor],
    fill: Fill,
    side: int,
    device: torch.device,
    ahead: int,
    pool: ThreadPoolExecutor,
) -> Generator[Batch, None, None]:
    copier = _side_stream(torch.cuda.current_device() if device.index is None else device.index)
    free = deque(_Buffer(None) for _ in range(ahead + 2))
    reading: deque[tuple[_Buffer, int, Future[None]]] = deque()
    targets = deque(_Buffer(device) for _ in range(2))
    copied: deque[tuple[_Buffer, int, torch.cuda.Event]] = deque()

    def read() -> None:
        """Let threads read what comes next."""
        while len(reading) < ahead and (samples := next(batches, None)) is not None:
            buffer = free.popleft()
            buffer.done.synchronize()
            indices, images = buffer.room(len(samples), side)
            indices.copy_(samples)
            reading.append((buffer, len(samples), pool.submit(fill, samples, images)))

    def copy() -> None:
        """Start to copy the batch that was read first."""
        buffer, count, finished = reading.popleft()
        finished.result()
        target = targets.popleft()
        with torch.cuda.stream(copier):
            copier.wait_event(target.done)
            for there, here in zip(target.room(count, side), buffer.room(count, side), strict=True):
                there.copy_(here, non_blocking=True)
            buffer.done.record(copier)
        free.append(buffer)
        copied.append((target, count, buffer.done))

    def take() -> Batch:
        """The batch that was copied first, for whatever the device does next."""
        target, count, arrived = copied.popleft()
        computing = torch.cuda.current_stream(device)
        computing.wait_event(arrived)
        samples, images = (part.clone() for part in target.room(count, side))
        target.done.record(computing)
        targets.append(target)
        return Batch(samples, images.permute(0, 3, 1, 2))

    read()
    try:
        while reading or copied:
            # The next one too, where it has been read: its copy need not wait for our next turn.
            while reading and targets and (not copied or reading[0][2].done()):
                copy()
            read()
            yield take()
    finally:
        # The memory of the targets is the copier's, which may write to it again at once.
        for target in targets:
            copier.wait_event(target.done)
