"""Single images of a shard, wherever it lies."""

import mmap
import os

import numpy as np

from dsf.data.source import Bytes, Integers


def copy_rows(shard: Bytes, rows: Integers, target: Bytes, places: Integers) -> None:
    """target[places] = shard[rows], image by image, without a copy in between.

    A file that is mapped into memory is read instead. What is touched of a map counts as this
    process's memory, in the end all of the data set; what is read stays with the system, which can
    drop it. And a file that was cut short is an error then, not the death of the process.
    """
    pairs = zip(rows.tolist(), places.tolist(), strict=True)
    found = _place_on_disk(shard)
    if found is None:
        for row, place in pairs:
            np.copyto(target[place], shard[row])
        return
    path, start = found
    length = shard[0].nbytes
    with open(path, "rb", buffering=0) as file:
        for row, place in pairs:
            _read_at(file.fileno(), start + row * length, memoryview(target[place]).cast("B"))


def _read_at(file: int, start: int, target: memoryview) -> None:
    done = 0
    while done < len(target):
        count = os.preadv(file, [target[done:]], start + done)
        if count == 0:
            raise OSError("a shard of the store has become shorter since it was opened")
        done += count


def _place_on_disk(shard: Bytes) -> tuple[str, int] | None:
    """The file of a memory map, and where the images begin; a slice does not know its place."""
    if not (isinstance(shard, np.memmap) and isinstance(shard.base, mmap.mmap)):
        return None
    if shard.filename is None or not shard.flags.c_contiguous or not hasattr(os, "preadv"):
        return None
    return str(shard.filename), int(shard.offset)
