"""Pages in Debian's Chromium, without a screen."""

import os
import re
import shutil
import socketserver
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 120
_NARROWEST = 500  # pixels of a window
# Blink's numbers of prefers-color-scheme.
_SCHEMES = {"dark": 0, "light": 1}
# Milliseconds of the page's own clock, so that scripts come to their end.
_PATIENCE = "--virtual-time-budget=5000"
_QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
)


# What Chromium asks for itself, whatever the page.
_OWN = (
    "accounts.google.com",
    "clients2.google.com",
    "update.googleapis.com",
    "www.google.com",
)


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
        return self._run(page, "--dump-dom", _PATIENCE).stdout

    def dom_after(self, page: Path, script: str) -> str:
        """The same after a script, which is run in a copy of the page without its policy."""
        html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
        body, end, rest = html.rpartition("</body>")
        copy = self.folder / f"{page.stem}-script.html"
        copy.write_text(f"{body}<script>{script}</script>{end}{rest}")
        return self.dom(copy)

    def console(self, page: Path) -> list[str]:
        """What the page wrote to the console; errors appear there too."""
        run = self._run(page, "--dump-dom", _PATIENCE)
        messages = re.findall(r"CONSOLE[:(]\d+\)?\] (.*)", run.stderr)
        return [message.strip() for message in messages]

    def requests(self, page: Path) -> list[str]:
        """What the page asked the network for, the first line of each request."""
        with _proxy() as (port, asked):
            proxy = (f"--proxy-server=127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>")
            self._run(page, "--dump-dom", _PATIENCE, *proxy, *_QUIET)
        return [line for line in asked if not any(host in line for host in _OWN)]

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


@contextmanager
def _proxy():
    """A proxy that only notes what it is asked for: its port, and the notes."""
    asked = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            asked.append(self.rfile.readline().decode("ascii", "replace").strip())
            self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], asked
        server.shutdown()


def find(folder: Path) -> Browser:
    """A browser; without one the test is skipped, or fails with CI=true."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        reason = f"no browser: none of {', '.join(_NAMES)} is installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return Browser(found, folder)
