"""One process a run: who is at it holds a lock that ends with the process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsf.files import alone


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether the run in this folder is ours for now; where there are no locks, always.

    The lock is on a file beside the folder, NAME.lock, which stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.with_name(f"{folder.name}.lock")) as mine:
        yield mine
