"""Whether a folder of images has changed since its store was made."""

from datetime import datetime
from shlex import quote

from dsf.data.folder import DEFAULT_SIZE, PREFIX, FolderSource, folder_path
from dsf.data.registry import open_store
from dsf.data.store import MANIFEST

# Names, sizes and times of so many files are read in three seconds from a disk of one's own.
MOST = 100_000


def stale_note(name: str, size: int | None = None) -> str | None:
    """What is worth a word about a folder that is no longer what its store was made of.

    Compared are the names, sizes and times of the files, and no content, so that it takes
    seconds. Nothing is said of a folder that is gone, since the store is enough, of one that could
    not be prepared as it is now, and of stores of more than ``MOST`` images.

    Args:
        name: of a prepared data set, of which only ``folder:PATH`` can change.
        size: of its store, where there are several.
    """
    if not name.startswith(PREFIX):
        return None
    store = open_store(name, size)
    before = sum(store.counts.values()) + len(store.left_out)
    if before > MOST:
        return None
    try:
        source = FolderSource(folder_path(name), store.image_size)
    except (OSError, ValueError):
        return None
    if source.fingerprint == store.manifest["fingerprint"]:
        return None
    more = sum(source.splits.values()) - before
    counted = f"{abs(more):,} {'more' if more > 0 else 'fewer'} image{'s' * (abs(more) != 1)}"
    date = datetime.fromtimestamp((store.path / MANIFEST).stat().st_mtime).date()
    option = "" if store.image_size == DEFAULT_SIZE else f" --size {store.image_size}"
    return (
        f"{name} has changed since its store was prepared, {date}{f': {counted}' if more else ''}; "
        f"`dsf data prepare {quote(name)}{option}` takes that in"
    )
