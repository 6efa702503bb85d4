"""Files that are whole or absent: written under another name, forced to the disk, then renamed."""

import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

TEMPORARY = ".tmp"
_BLOCK = 1 << 22


def write_file(path: Path, *parts: bytes | memoryview) -> str:
    """Write the parts one after the other, and return the sha256 of the whole.

    Plain writes rather than a memory map: on a full disk these raise, a map ends the process.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    digest = hashlib.sha256()
    try:
        with open(temporary, "wb", buffering=0) as file:
            for part in parts:
                rest = memoryview(part).cast("B")
                digest.update(rest)
                while rest:
                    rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
    except OSError as error:
        temporary.unlink(missing_ok=True)  # what is half written only takes room
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}") from error
    os.replace(temporary, path)
    sync_folder(path.parent)
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> str:
    """Write a value as readable JSON, and return the file's sha256."""
    return write_file(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(value).__name__}")
    return value


def blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, piece by piece."""
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            yield block


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process is in here with this folder; whoever is killed lets go of it.

    Where a network drive or a system knows no such locks it waits for nobody.
    """
    descriptor = os.open(folder, os.O_RDONLY) if sys.platform != "win32" else None
    try:
        if descriptor is not None:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def alone(lock: Path) -> Iterator[bool]:
    """Whether no other process is in here with this file; whoever is killed lets go of it.

    The file is made, and stays; not a folder, which network drives cannot lock. Where a drive or a
    system knows no locks every process is alone.
    """
    if sys.platform == "win32":
        yield True
        return
    with open(lock, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        yield True


def sha256(path: Path) -> str:
    """The sha256 of a file."""
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


def sync_folder(path: Path) -> None:
    """Make renames in a folder survive a crash, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
