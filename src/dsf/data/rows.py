"""Single images of a shard, wherever it lies."""

import math
from io import FileIO
from pathlib import Path

import numpy as np

from dsf.data.source import Bytes, Integers


class ShardFile:
    """A shard in a file, read as it is asked for.

    It is no memory map. Each of those holds a file open, and ImageNet has more shards than a
    process may open files. What is touched of a map counts as this process's memory, in the end all
    of the data set; what is read stays with the system, which can drop it. And a file that was cut
    short is an error here, not the death of the process.

    Args:
        path: of the file.
        start: where the images begin in it.
        shape: (n, H, W, 3).
    """

    def __init__(self, path: Path, start: int, shape: tuple[int, ...]) -> None:
        self.path, self.start, self.shape = path, start, shape

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """The memory that all images take."""
        return math.prod(self.shape)


Shard = Bytes | ShardFile


def copy_rows(shard: Shard, rows: Integers, target: Bytes, places: Integers) -> None:
    """target[places] = shard[rows], image by image, without a copy in between."""
    pairs = zip(rows.tolist(), places.tolist(), strict=True)
    if not isinstance(shard, ShardFile):
        for row, place in pairs:
            np.copyto(target[place], shard[row])
        return
    length = math.prod(shard.shape[1:])
    with open(shard.path, "rb", buffering=0) as file:
        for row, place in pairs:
            file.seek(shard.start + row * length)
            _fill(file, memoryview(target[place]).cast("B"))


def _fill(file: FileIO, target: memoryview) -> None:
    done = 0
    while done < len(target):
        count = file.readinto(target[done:])
        if not count:
            raise OSError(f"{file.name} has become shorter since it was opened")
        done += count
