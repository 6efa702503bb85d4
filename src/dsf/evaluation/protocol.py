"""What all evaluations share: a protocol says all that was settled before, a result what came out.

Nothing of a protocol depends on the test set, and no evaluation reads a test label before its last
step, the comparison with the predictions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from dsf.evaluation.subject import Subject


@dataclass(frozen=True)
class Result:
    """What an evaluation found.

    Args:
        protocol: how, fit for JSON; equal protocols need not be run twice.
        numbers: what it was run for.
        details: what else is worth keeping, fit for JSON.
        state: what was trained, by name; not for JSON.
        earlier: the seconds of what it found done already by one that was killed.
        forget: what it kept meanwhile to go on from; to be called once the result is safe.
    """

    protocol: dict[str, Any]
    numbers: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
    state: Mapping[str, Tensor] = field(default_factory=dict)
    earlier: float = 0.0
    forget: Callable[[], None] = lambda: None

    def entry(self) -> dict[str, Any]:
        """As ``results.json`` keeps it."""
        return {"protocol": self.protocol, **self.numbers, "details": self.details}


@dataclass(frozen=True)
class Protocol(ABC):
    """The settings of an evaluation, all of them with a default.

    Attributes:
        name: as the command line spells it.
        method: one sentence on how it works.
    """

    name: ClassVar[str]
    method: ClassVar[str]

    @abstractmethod
    def evaluate(self, subject: "Subject", seed: int = 0) -> Result:
        """Evaluate an encoder.

        Args:
            subject: the encoder and what it is evaluated on.
            seed: of all that is random, in [0, 2^64).
        """

    def check(self, subject: "Subject") -> None:  # noqa: B027 - most need nothing
        """Raise what ``evaluate`` would for want of something, before anything is computed."""

    def describe(self, subject: "Subject", seed: int) -> dict[str, Any]:
        """All that is settled before the evaluation begins, fit for JSON."""
        return {
            "name": self.name,
            "method": self.method,
            **self.settings(subject),
            "seed": seed,
            **subject.describe(),
        }

    def settings(self, subject: "Subject") -> dict[str, Any]:
        """Its own part of that: by default its fields."""
        return {item.name: plain(getattr(self, item.name)) for item in fields(self)}

    def changes(self, default: "Protocol") -> str:
        """What differs from another one of its kind, such as ``k=20``; empty if nothing does."""
        pairs = [(item.name, getattr(self, item.name)) for item in fields(self)]
        return " ".join(
            f"{name}={_short(value)}" for name, value in pairs if value != getattr(default, name)
        )


def plain(value: Any) -> Any:
    """A setting as JSON would give it back."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def _short(value: Any) -> str:
    if isinstance(value, Protocol):
        return value.name
    if isinstance(value, tuple):
        return ",".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
