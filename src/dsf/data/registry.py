"""The data sets by name: find, prepare and load them.

A new data set is a ``DataSet`` in a file of its own and one entry in ``DATASETS`` or
``dsf.data.sets.SETS``.
"""

import difflib
import errno
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from dsf.data import embedded, writer
from dsf.data.cifar import CIFAR10, CIFAR100
from dsf.data.fashion import FASHION_MNIST
from dsf.data.folder import PREFIX, folder_data_set, folder_path, missing
from dsf.data.layout import data_root
from dsf.data.progress import Progress
from dsf.data.sets import SETS
from dsf.data.source import DataSet, Request, fixed_size
from dsf.data.split import Split
from dsf.data.store import MANIFEST, Store, is_store
from dsf.files import read_json

if sys.platform != "win32":
    import fcntl

DATASETS = {data_set.name: data_set for data_set in (CIFAR10, CIFAR100, FASHION_MNIST, *SETS)}
EMBEDDED = "embedded"


class SeveralSizesError(ValueError):
    """A data set is prepared in several sizes, and nobody said which one is meant.

    Args:
        name: of the data set.
        sizes: all of them.
        newest: the one that was prepared last.
    """

    def __init__(self, name: str, sizes: Sequence[int], newest: int) -> None:
        self.name, self.sizes, self.newest = name, tuple(sizes), newest
        super().__init__(self.explain(f"size={newest}"))

    def explain(self, choice: str) -> str:
        """The message, with what says the newest size where the caller is."""
        return (
            f"size: {self.name} is prepared in the sizes {', '.join(map(str, self.sizes))}: take "
            f"{choice}, the one prepared last, or another of them"
        )


def find(name: str, size: int | None = None) -> DataSet:
    """The data set of a name, in its own size or the one given."""
    if name.startswith(PREFIX):
        return folder_data_set(name).at(size)
    if name == EMBEDDED:
        raise ValueError("embedded lies inside the package: it has no store, load() opens it")
    if name not in DATASETS:
        if Path(name).expanduser().is_dir():
            raise ValueError(f"no data set is called {name!r}: did you mean {PREFIX}{name}?")
        names = (*DATASETS, EMBEDDED)
        close = difflib.get_close_matches(name.lower(), names, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(
            f"data set must be one of {', '.join(names)} or {PREFIX}PATH; got {name!r}{hint}"
        )
    return DATASETS[name].at(size)


def load(name: str, split: str = "train", size: int | None = None) -> Split:
    """A split of a prepared data set, or of the embedded images.

    Example:
        >>> split = load("embedded", "test")
        >>> split.images().shape, split.classes[split.labels()[0]]
        (torch.Size([1000, 3, 32, 32]), 'cat')
    """
    if name == EMBEDDED:
        found = embedded.load(split)
        if size not in (None, found.image_size):
            raise ValueError(fixed_size(name, found.image_size, size))
        return found
    return open_store(name, size).split(split)


def open_store(name: str, size: int | None = None, verify: bool = False) -> Store:
    """The store of a prepared data set; ``verify`` reads all of it and compares checksums."""
    data_set = find(name, size)
    path = data_root() / data_set.store_name
    if data_set.resizable and size is None:
        path = _only_size(name, data_set)
    if not (path / MANIFEST).is_file():
        if name.startswith(PREFIX) and not folder_path(name).is_dir():
            raise FileNotFoundError(missing(name))
        option = "" if size is None else f" --size {size}"
        others = " or ".join(f"`--source {word}`" for word in data_set.sources)
        raise FileNotFoundError(
            f"{name} is not prepared in {path.parent}: run `dsf data prepare {quote(name)}{option}`"
            + (f", perhaps with {others}" if others else "")
        )
    try:
        return Store(path, verify)
    except ValueError as error:
        again = f"dsf data prepare {quote(name)}" + ("" if size is None else f" --size {size}")
        raise ValueError(f"{error}. `{again}` makes it again") from None


def prepare(
    name: str | DataSet,
    source: str | None = None,
    size: int | None = None,
    skip_broken: bool = False,
    progress: Progress | None = None,
    begin: Callable[[], None] = lambda: None,
    wait: bool = False,
) -> Store:
    """Make sure that a data set has a complete, verified store, and open it.

    A store that exists is read and compared with its checksums. It is made again only if it is
    damaged, or if a folder's images have changed; only then, or if there is none, is a source
    looked for or downloaded. Stopped at any point, the next call goes on.

    Args:
        name: of the data set.
        source: a path, or a word that the data set knows; by default it is looked for.
        size: the side of the square images, where they are not kept as they are.
        skip_broken: leave unreadable images out instead of raising ``BrokenImagesError``.
        progress: how to tell about it; silent by default.
        begin: called once the images are found, before they are read.
        wait: for another process that is preparing, instead of raising ``BlockingIOError``.
    """
    data_set = (name if isinstance(name, DataSet) else find(name)).at(size)
    progress = progress or Progress()
    title = data_set.name if isinstance(name, DataSet) else name
    root = data_root()
    path = root / data_set.store_name
    downloads = root / f"{data_set.store_name}.download"
    with _only_process(root, wait):
        store = _verified(path, data_set, title, progress)
        if store is None or not data_set.fixed:
            request = Request(source, data_set.image_size, downloads, progress)
            opened = data_set.open_source(request)
            if opened.description.startswith(str(downloads.absolute())):
                opened.description = f"downloaded, see {data_set.home}"  # that folder will be gone
            if store is None or store.manifest["fingerprint"] != opened.fingerprint:
                data_set.check(opened.description, opened.content)
                data_set.check_counts(opened)
                begin()
                writer.build(path, data_set.name, opened, progress, skip_broken, title)
                store = Store(path)
                data_set.check(str(path), store.content)
        writer.remove_leftovers(path)
        # The store holds all of it. A child of a killed run may still be writing: next time, then.
        shutil.rmtree(downloads, ignore_errors=True)
    return store


def stores() -> Iterator[tuple[str, Store | Exception]]:
    """All stores there are, by the name that loads them; those that do not open with the reason."""
    root = data_root()
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if (path / MANIFEST).is_file() and path.suffix not in writer.UNFINISHED:
            try:
                store = Store(path)
            except (ValueError, OSError) as error:
                yield _name_of(path.name), error
            else:
                name = _name_of(path.name)
                yield name if name in DATASETS else store.manifest["source"], store


def is_begun(name: str) -> bool:
    """Whether a preparation of a data set was stopped before its end."""
    root = data_root()
    folders = root.glob(f"*{writer.UNFINISHED[0]}") if root.is_dir() else ()
    return any(_name_of(folder.stem) == name for folder in folders)


def _name_of(store: str) -> str:
    """The data set of a store's folder, as far as the folder tells."""
    name, _, size = store.rpartition("-")
    return name if size.isdecimal() and name in DATASETS else store


def _verified(path: Path, data_set: DataSet, title: str, progress: Progress) -> Store | None:
    """The store if it is there and sound; None if it must be made."""
    if not path.exists():
        return None
    if not is_store(path):  # never replace what somebody else put there
        begun = "move it away, or"
        if _damaged(path / MANIFEST):
            begun = f"its {MANIFEST} is damaged. Delete it if it was one; else move it away, or"
        raise FileExistsError(f"{path} is not a store: {begun} set DSF_DATA elsewhere")
    try:
        store = Store(path)
        with progress.task(f"{title}, verified", sum(store.counts.values())) as advance:
            store.verify(advance)
        data_set.check(str(path), store.content)
    except ValueError as error:
        progress.say(f"{error}; preparing it again")
        return None
    return store


def _damaged(manifest: Path) -> bool:
    try:
        read_json(manifest)
    except ValueError:
        return True
    except OSError:
        return False
    return False


def _only_size(name: str, data_set: DataSet) -> Path:
    """The store of a data set whose size was not given."""
    root = data_root()
    made = {}
    for file in root.glob(f"{data_set.name}-*/{MANIFEST}"):
        end = file.parent.name.removeprefix(f"{data_set.name}-")
        if end.isdecimal():
            made[int(end)] = file.stat().st_mtime_ns
    if len(made) > 1:
        raise SeveralSizesError(name, sorted(made), max(made, key=lambda size: made[size]))
    return root / data_set.at(next(iter(made), None)).store_name


@contextmanager
def _only_process(root: Path, wait: bool) -> Iterator[None]:
    """Hold the folder for this process; whoever is killed lets go of it."""
    root.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    with open(root / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise BlockingIOError(
                f"another process is preparing a data set in {root}; wait for it"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise  # some network drives know no locks; whoever works there must take care
        yield
