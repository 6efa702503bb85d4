"""What somebody may have meant who named a path that is not there."""

import difflib
from collections.abc import Callable
from pathlib import Path


def nearest(path: Path, fits: Callable[[Path], bool]) -> Path | None:
    """That beside a path whose name is most like its own, of those that fit; None if none is."""
    try:
        names = [other.name for other in path.parent.iterdir() if fits(other)]
    except OSError:
        return None
    close = difflib.get_close_matches(path.name, names, 1)
    return path.with_name(close[0]) if close else None
