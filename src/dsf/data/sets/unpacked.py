"""Data sets that lie unpacked in a folder: where it is, or how torchvision downloads it."""

import http.client
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsf.data.layout import search_folders
from dsf.data.source import Request

_FAILURES = (
    *(OSError, RuntimeError, EOFError, http.client.HTTPException),
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class Unpacked:
    """The layout of a data set.

    Args:
        name: of the data set.
        folders: what its folder may be called below a folder of data sets.
        parts: files and folders that must be in it.
        torchvision: the class of ``torchvision.datasets`` that downloads it; empty if none does.
        advice: how to get it where none does.
    """

    name: str
    folders: tuple[str, ...]
    parts: tuple[str, ...]
    torchvision: str = ""
    advice: str = ""

    def locate(self, request: Request) -> Path:
        """The folder that ``--source`` names, or else one that is found, or else a download."""
        if request.source == "download":
            return self._download(request)
        if request.source is not None:
            return self._given(Path(request.source).expanduser())
        for path in (path for root in search_folders() for path in self._candidates(root)):
            if missing := self._missing(path):
                request.progress.say(f"{path} does not hold {self.name}: it has no {missing[0]}")
            else:
                return path
        return self._download(request)

    def _candidates(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.folders if (folder / name).is_dir()]

    def _missing(self, folder: Path) -> list[str]:
        return [part for part in self.parts if not (folder / part).exists()]

    def _given(self, path: Path) -> Path:
        if path.is_file():
            raise ValueError(f"source {path} is a file: unpack it, and give the folder")
        if not path.is_dir():
            raise FileNotFoundError(f"source {path} does not exist")
        candidates = [*self._candidates(path), path]
        sound = [folder for folder in candidates if not self._missing(folder)]
        if not sound:
            raise ValueError(
                f"{candidates[0]} does not hold {self.name}: it has no "
                f"{self._missing(candidates[0])[0]}; must have {', '.join(self.parts)}"
            )
        return sound[0]

    def _download(self, request: Request) -> Path:
        if not self.torchvision:
            raise FileNotFoundError(
                f"{self.name} is not on this machine: {self.advice}, then give --source PATH"
            )
        from torchvision import datasets

        complete = request.downloads / "complete"
        if not complete.is_dir():
            # Afresh: torchvision takes a folder that was unpacked in part for the whole.
            unfinished = request.downloads / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            request.progress.say(f"downloading {self.name} as torchvision's {self.torchvision}")
            try:
                getattr(datasets, self.torchvision)(str(unfinished), download=True)
            except _FAILURES as error:
                reason = getattr(error, "reason", None) or error
                raise ConnectionError(
                    f"cannot download {self.name}: {reason}; try again, or give --source PATH"
                ) from error
            os.replace(unfinished, complete)
        return self._given(complete)


def table(path: Path, columns: int) -> Iterator[list[str]]:
    """The lines of a text file, each divided at spaces; the last column keeps its own."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text: {error}") from None
    for number, line in enumerate(lines, 1):
        if cells := line.split(maxsplit=columns - 1):
            if len(cells) != columns:
                raise ValueError(
                    f"{path}, line {number}: must have {columns} columns; got {line!r}"
                )
            cells[-1] = cells[-1].rstrip()
            yield cells


def class_number(name: str, classes: dict[str, int], where: Path) -> int:
    """The number of a class; says where an unknown one was found."""
    if name not in classes:
        raise ValueError(f"{where}: unknown class {name!r}")
    return classes[name]
