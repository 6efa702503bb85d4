"""What a long evaluation has found so far: killed, it goes on from there."""

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsf.files import read_json, write_json


class Partial:
    """Scores by setting, in a file of their own for each protocol.

    Args:
        folder: of such files; None keeps nothing.
        protocol: what the scores are of: another one, to the last setting, has another file.

    Attributes:
        seconds: what the scores that are known from the start took.
    """

    def __init__(self, folder: Path | None, protocol: Mapping[str, Any]) -> None:
        key = hashlib.sha256(json.dumps(protocol, sort_keys=True).encode()).hexdigest()[:16]
        self._path = None if folder is None else folder / f"{protocol['name']}-{key}.json"
        known = read_json(self._path) if self._path is not None and self._path.is_file() else {}
        self._scores: dict[str, float] = known.get("scores", {})
        self.seconds: float = known.get("seconds", 0.0)
        self._start = time.perf_counter()

    def get(self, setting: Mapping[str, float]) -> float | None:
        """The score of a setting, if it is known."""
        return self._scores.get(json.dumps(setting))

    def add(self, setting: Mapping[str, float], score: float) -> None:
        """Keep a score."""
        self._scores[json.dumps(setting)] = score
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            seconds = self.seconds + time.perf_counter() - self._start
            write_json(self._path, {"scores": self._scores, "seconds": seconds})

    def remove(self) -> None:
        """Forget all, when the result is kept; the folder too if it was the last."""
        if self._path is not None and self._path.is_file():
            self._path.unlink()
            if not any(self._path.parent.iterdir()):
                self._path.parent.rmdir()


def settings_tried(folder: Path) -> int:
    """How many settings the files of a folder know the score of; 0 where there is no folder."""
    return sum(len(read_json(path).get("scores", {})) for path in folder.glob("*.json"))
