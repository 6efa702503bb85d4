"""Build a store so that it can be stopped anywhere: started again, it goes on to the same bytes.

All work is done in ``NAME.partial``, which becomes ``NAME`` once it is complete. Beside every
finished shard lies a record of it; a shard without a record is made again. Once somebody was told
of images that cannot be read, their shards have none.
"""

import errno
import hashlib
import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsf import files
from dsf.data.progress import Progress
from dsf.data.source import Chunk, LeftOut, Source, labels_hash
from dsf.data.store import FORMAT, MANIFEST, file_names

SHARD_BYTES = 1 << 26
UNFINISHED = (".partial", ".replaced")
_PLAN = "plan.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Record = dict[str, Any]


class BrokenImagesError(ValueError):
    """Images could not be read, and nobody asked to go on without them.

    Args:
        left_out: all of them.
        total: how many images there should be.
    """

    def __init__(self, left_out: list[LeftOut], total: int) -> None:
        self.left_out = left_out
        self.total = total
        super().__init__(self.explain("skip_broken=True"))

    def explain(self, option: str) -> str:
        """The message, with the option that leaves them out as the caller knows it."""
        return (
            f"{len(self.left_out):,} of {self.total:,} images cannot be read, the first is "
            f"{self.left_out[0].path}: {self.left_out[0].reason}. Mend or remove them, or leave "
            f"them out with {option}"
        )


def build(
    path: Path,
    name: str,
    source: Source,
    progress: Progress,
    skip_broken: bool = False,
    title: str | None = None,
) -> None:
    """Make a store of a source, in place of what may be at ``path``.

    Args:
        path: the store's folder.
        name: of the data set, for the manifest.
        source: of the images.
        progress: how to tell about it.
        skip_broken: leave unreadable images out instead of raising ``BrokenImagesError``.
        title: what ``progress`` calls it, if not by its name.
    """
    partial = partial_folder(path)
    plan = {
        "format": FORMAT,
        "name": name,
        "source": source.description,
        "fingerprint": source.fingerprint,
        "image_size": source.image_size,
        "shard_images": max(1, SHARD_BYTES // (source.image_size**2 * 3)),
    }
    try:
        if not _matches(partial / MANIFEST, plan):
            _begin(partial, plan)
            manifest = _write_splits(partial, plan, source, progress, skip_broken, title or name)
            files.write_json(partial / MANIFEST, manifest)
        _publish(partial, path)
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(
                error.errno,
                f"{error.strerror}. What is finished is kept in {partial}: make room and run the "
                "same command again",
            ) from error
        raise


def remove_leftovers(path: Path) -> None:
    """Remove what an interrupted run left beside a complete store."""
    for folder in (partial_folder(path), _replaced_folder(path)):
        if folder.exists():
            shutil.rmtree(folder)


def partial_folder(path: Path) -> Path:
    """Where a store is while it is being built."""
    return path.with_name(path.name + UNFINISHED[0])


def _replaced_folder(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED[1])


def _matches(file: Path, plan: dict[str, Any]) -> bool:
    """Whether an earlier run was about the same thing."""
    found = _read(file)
    return found is not None and all(found.get(key) == value for key, value in plan.items())


def _read(file: Path) -> dict[str, Any] | None:
    try:
        return files.read_json(file)
    except (FileNotFoundError, ValueError):
        return None


def _begin(partial: Path, plan: dict[str, Any]) -> None:
    if not _matches(partial / _PLAN, plan):
        if partial.exists():  # another source, or a source that has changed
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        files.write_json(partial / _PLAN, plan)


def _write_splits(
    partial: Path,
    plan: dict[str, Any],
    source: Source,
    progress: Progress,
    skip_broken: bool,
    title: str,
) -> dict[str, Any]:
    total = sum(source.splits.values())
    splits, left_out, broken = {}, [], []
    with progress.task(title, total) as advance:
        for split, count in source.splits.items():
            content = hashlib.sha256()
            records = []
            for number, start in enumerate(range(0, count, plan["shard_images"])):
                stop = min(start + plan["shard_images"], count)
                shard = partial / f"{split}-{number:05d}.npy"
                record = _resume(shard, content)
                if record is None:
                    record = _write_shard(shard, source.read(split, start, stop, advance), content)
                else:
                    advance(stop - start)
                records.append(record)
                if record["left_out"]:
                    broken.append(_record_of(shard))
            left_out += [LeftOut(*entry) for record in records for entry in record["left_out"]]
            splits[split] = _write_rest(partial, split, records, content.hexdigest())
    empty = [split for split, entry in splits.items() if not entry["count"]]
    if empty or (left_out and not skip_broken):
        # To be read again: who mends rights, a drive or Pillow leaves no trace in the files.
        for record_file in broken:
            record_file.unlink()
    if left_out and not skip_broken:
        raise BrokenImagesError(left_out, total)
    if empty:
        raise ValueError(f"{source.description}: no image of split {empty[0]!r} can be read")
    return {
        **plan,
        "classes": list(source.classes),
        "splits": splits,
        "left_out": [entry._asdict() for entry in left_out],
        "ignored": dict(source.ignored),
        "note": source.note,
    }


def _resume(shard: Path, content: "hashlib._Hash") -> Record | None:
    """The record of a shard that an earlier run finished; its pixels enter the content's hash."""
    record = _read(_record_of(shard))
    if record is None or not record["count"]:
        return record
    data = shard.read_bytes() if shard.is_file() else b""
    if hashlib.sha256(data).hexdigest() != record["sha256"]:
        return None
    content.update(memoryview(data)[record["header"] :])
    return record


def _write_shard(shard: Path, chunk: Chunk, content: "hashlib._Hash") -> Record:
    record: Record = {"file": shard.name, "count": len(chunk.images)}
    if len(chunk.images):
        record |= _write_array(shard, chunk.images)
        content.update(np.ascontiguousarray(chunk.images).reshape(-1).data)
    record["labels"] = None if chunk.labels is None else chunk.labels.tolist()
    record["sizes"] = None if chunk.sizes is None else chunk.sizes.tolist()
    record["left_out"] = list(chunk.left_out)
    files.write_json(_record_of(shard), record)
    return record


def _write_rest(partial: Path, split: str, records: list[Record], content: str) -> Record:
    """Write a split's labels and sizes; return its entry in the manifest."""
    kept = [record for record in records if record["count"]]
    keys = ("file", "count", "bytes", "header", "sha256")
    entry: Record = {
        "count": sum(record["count"] for record in kept),
        "content": {"images": content, "labels": ""},
        "shards": [{key: record[key] for key in keys} for record in kept],
    }
    for part in ("labels", "sizes"):
        values = [value for record in kept for value in record[part] or ()]
        entry[part] = None
        if values:
            array = np.array(values, dtype=np.int64)
            file = partial / f"{split}-{part}.npy"
            entry[part] = {"file": file.name, **_write_array(file, array)}
            if part == "labels":
                entry["content"]["labels"] = labels_hash(array)
    return entry


def _write_array(path: Path, array: NDArray[Any]) -> Record:
    header = io.BytesIO()
    array = np.ascontiguousarray(array)
    # little-endian on every machine; a byte has no order
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    start = header.getvalue()
    checksum = files.write_file(path, start, array.reshape(-1).data)
    return {"bytes": len(start) + array.nbytes, "header": len(start), "sha256": checksum}


def _record_of(shard: Path) -> Path:
    return shard.with_suffix(".json")


def _publish(partial: Path, path: Path) -> None:
    keep = file_names(files.read_json(partial / MANIFEST))
    for file in sorted(partial.iterdir()):
        if file.name not in keep:
            file.unlink()
    if path.exists():
        replaced = _replaced_folder(path)
        if replaced.exists():
            shutil.rmtree(replaced)
        os.replace(path, replaced)
    os.replace(partial, path)
    files.sync_folder(path.parent)
    remove_leftovers(path)
