"""Which run somebody may have meant who named a folder that is none."""

from pathlib import Path

from dsf.data.nearby import nearest

_CONFIG = "config.yaml"


def run_hint(folder: Path | str) -> str:
    """The end of a message about a folder that is no run; empty where there is nothing to say."""
    folder = Path(folder)
    if folder.is_dir():
        below = sorted(path.parent for path in folder.glob(f"*/{_CONFIG}"))
        return f"; there are runs in it, such as {below[0]}" if below else ""
    meant = nearest(folder, lambda path: (path / _CONFIG).is_file())
    return f": did you mean {meant}?" if meant is not None else ""
