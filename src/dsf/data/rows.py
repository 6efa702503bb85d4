"""Single images of a shard, wherever it lies."""

import math
import os
from pathlib import Path

import numpy as np

from dsf.data.source import Bytes, Integers


class ShardFile:
    """A shard in a file, read as it is asked for.

    It is no memory map. Each of those holds a file open, and ImageNet has more shards than a
    process may open files. What is touched of a map counts as this process's memory, in the end all
    of the data set; what is read stays with the system, which can drop it. And a file that was cut
    short is an error here, not the death of the process; so is another that has taken its place.

    Args:
        path: of the file.
        start: where the images begin in it.
        shape: (n, H, W, 3).
    """

    def __init__(self, path: Path, start: int, shape: tuple[int, ...]) -> None:
        self.path, self.start, self.shape = path, start, shape
        self.modified = _modified(path)

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
        if _modified(file.fileno()) != shard.modified:
            raise _changed(shard.path)
        for row, place in pairs:
            file.seek(shard.start + row * length)
            rest = memoryview(target[place]).cast("B")
            while rest:
                count = file.readinto(rest)
                if not count:
                    raise _changed(shard.path)
                rest = rest[count:]


def _modified(file: Path | int) -> int:
    return int(os.stat(file).st_mtime)  # whole seconds, all that some network drives keep


def _changed(path: Path) -> OSError:
    return OSError(f"{path} has changed since it was opened; was its data set prepared again?")
