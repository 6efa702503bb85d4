"""Where data lies: the stores, the files of data sets, and archives, which are never unpacked."""

import os
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath


def data_root() -> Path:
    """The folder of the stores: $DSF_DATA, or dsf in the user's cache."""
    if given := os.environ.get("DSF_DATA"):
        return Path(given).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        cache = home() / ".cache"
    if not cache.is_absolute():
        raise ValueError("DSF_DATA must say where stores lie, as this user has no home; got none")
    return cache / "dsf"


def home() -> Path:
    """The user's folder; in containers not all have one, and this is then no absolute path."""
    return Path(os.path.expanduser("~"))


def search_folders() -> list[Path]:
    """The folders in which data sets are looked for when no source is given."""
    return [data_root(), Path("data"), home() / "data", Path("/usr/share/datasets")]


def read_files(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Those of the named files that a folder or a tar archive has, in whatever folder of it."""
    wanted = set(names)
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in wanted if (path / name).is_file()}
    found = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in wanted and member.isfile() and name not in found:
                    file = archive.extractfile(member)
                    assert file is not None  # a plain member has content
                    found[name] = file.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is not a readable archive: {error}") from None
    return found
