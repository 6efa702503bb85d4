"""Pages in Debian's Chromium, without a screen."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 120
_NARROWEST = 500  # pixels of a window
# Blink's numbers of prefers-color-scheme.
_SCHEMES = {"dark": 0, "light": 1}


class Browser:
    """A browser that starts anew for every look at a page."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder

    def screenshot(self, page: Path, width=1100, height=2000, scheme="light") -> Path:
        """A picture of the page."""
        picture = self.folder / f"{page.stem}-{width}-{scheme}.png"
        if width < _NARROWEST:
            page = self._framed(page, width, height)
        self._run(
            page,
            f"--screenshot={picture}",
            f"--window-size={width},{height}",
            f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}",
        )
        return picture

    def dom(self, page: Path) -> str:
        """The page as the browser has understood it."""
        return self._run(page, "--dump-dom").stdout

    def console(self, page: Path) -> list[str]:
        """What the page wrote to the console; errors appear there too."""
        messages = re.findall(r"CONSOLE[:(]\d+\)?\] (.*)", self._run(page, "--dump-dom").stderr)
        return [message.strip() for message in messages]

    def _framed(self, page: Path, width: int, height: int) -> Path:
        """A page that shows another as narrow as a phone does, which no window is."""
        frame = self.folder / f"{page.stem}-{width}.html"
        address = page.absolute().as_uri()
        frame.write_text(
            "<!doctype html><title>phone</title><style>* { margin: 0; border: 0 }</style>"
            f'<iframe src="{address}" width={width} height={height}></iframe>'
        )
        return frame

    def _run(self, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            self.program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--user-data-dir={self.folder / 'profile'}",
            *options,
            page.absolute().as_uri(),
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)


def find(folder: Path) -> Browser:
    """A browser; without one the test is skipped, or fails with CI=true."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        reason = f"no browser: none of {', '.join(_NAMES)} is installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return Browser(found, folder)
