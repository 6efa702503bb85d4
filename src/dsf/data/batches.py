"""Batches of images on the device, from images that live there or from a stream."""

from collections.abc import Generator

import torch
from torch import Tensor

from dsf.data.sampler import EpochSampler
from dsf.data.split import Split
from dsf.data.stream import Batch

# Above it images are streamed from the disk to a CPU, which has them in its cache then anyway.
_RESIDENT_ON_CPU = 2 << 30


def room(device: torch.device) -> int:
    """The bytes of images that may be kept on a device."""
    if device.type == "cpu":
        return _RESIDENT_ON_CPU
    return torch.cuda.mem_get_info(device)[0] // 2


class Batches:
    """The batches of every epoch.

    Args:
        split: the images.
        sampler: their order, on the device where images are resident, else on the CPU.
        device: where batches are wanted.
        resident: keep all images there; else they are streamed.
        rows: (n,) int64 on the CPU, if the sampler's are the numbers of these images alone.
    """

    def __init__(
        self,
        split: Split,
        sampler: EpochSampler,
        device: torch.device,
        resident: bool,
        rows: Tensor | None = None,
    ) -> None:
        self.split = split
        self.sampler = sampler
        self.device = device
        self._images = split.images(device) if resident else None
        self._sizes = split.sizes(device)
        self._rows = None if rows is None else rows.to(sampler.device)

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """This process's batches, from batch number ``start`` on; close it to leave early."""
        order = self.sampler.batches(epoch, start)
        if self._rows is not None:
            rows = self._rows
            order = (rows[numbers] for numbers in order)
        if self._images is None:
            return self.split.stream(order, self.device)
        images = self._images
        return (Batch(samples, images[samples]) for samples in order)

    @property
    def images(self) -> dict[str, Tensor]:
        """All images of the split by its name, where they are kept on the device."""
        return {} if self._images is None else {self.split.name: self._images}

    def sizes(self, samples: Tensor) -> Tensor | None:
        """The original heights and widths of some images, if they were squashed."""
        return None if self._sizes is None else self._sizes[samples]
