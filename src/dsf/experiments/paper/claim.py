"""One process a run: who is at it holds a lock that ends with the process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether the run in this folder is ours for now; on Windows, which has no such locks, always.

    The lock is on a file beside the folder, NAME.lock, which stays.
    """
    if sys.platform == "win32":
        yield True
        return
    import fcntl

    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
