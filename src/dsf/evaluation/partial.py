"""What a long evaluation has found so far: killed, it goes on from there."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsf.data.files import read_json, write_json


class Partial:
    """Scores by setting, in a file of their own for each protocol.

    Args:
        folder: of such files; None keeps nothing.
        protocol: what the scores are of: another one, to the last setting, has another file.
    """

    def __init__(self, folder: Path | None, protocol: Mapping[str, Any]) -> None:
        key = hashlib.sha256(json.dumps(protocol, sort_keys=True).encode()).hexdigest()[:16]
        self._path = None if folder is None else folder / f"{protocol['name']}-{key}.json"
        self._scores: dict[str, float] = {}
        if self._path is not None and self._path.is_file():
            self._scores = read_json(self._path)

    def get(self, setting: Mapping[str, float]) -> float | None:
        """The score of a setting, if it is known."""
        return self._scores.get(json.dumps(setting))

    def add(self, setting: Mapping[str, float], score: float) -> None:
        """Keep a score."""
        self._scores[json.dumps(setting)] = score
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self._scores)

    def remove(self) -> None:
        """Forget all, when the evaluation is complete; the folder too if it was the last."""
        if self._path is not None and self._path.is_file():
            self._path.unlink()
            if not any(self._path.parent.iterdir()):
                self._path.parent.rmdir()
