"""Axes: where the ticks are, and what a value is on paper."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """A linear scale.

    Args:
        low: the value at ``start``.
        high: the value at ``end``, above ``low``.
        start: a coordinate.
        end: a coordinate, on either side of ``start``.
        ticks: values between ``low`` and ``high``.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...] = ()

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def nice_axis(values: Iterable[float], start: float, end: float, ticks: int = 5) -> Axis:
    """An axis that covers all finite values, from tick to tick.

    Example:
        >>> nice_axis([0.3, 4.6], 0, 100).ticks
        (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    if not finite:
        raise ValueError("an axis needs at least one finite value")
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # one value: give it room on both sides
        room = abs(low) / 10 or 0.5
        low, high = low - room, high + room
    step = _nice_step((high - low) / ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = tuple(step * position for position in range(first, last + 1))
    return Axis(marks[0], marks[-1], start, end, marks)


def fitted_axis(
    low: float, high: float, start: float, end: float, ticks: int = 5, whole: bool = True
) -> Axis:
    """An axis from ``low`` to ``high`` exactly, with ticks in between, whole ones by default.

    Example:
        >>> fitted_axis(0, 24, 0, 100).ticks
        (0.0, 5.0, 10.0, 15.0, 20.0)
    """
    if not high > low:
        raise ValueError(f"high must be above low = {low}; got {high}")
    step = _nice_step((high - low) / ticks)
    if whole:
        step = 5.0 if step == 2.5 else max(step, 1.0)
    first, last = math.ceil(low / step), math.floor(high / step)
    return Axis(
        low, high, start, end, tuple(step * position for position in range(first, last + 1))
    )


def tick_labels(ticks: tuple[float, ...]) -> list[str]:
    """The ticks with as many decimals as tell them apart; with exponents where they are huge."""
    if max(map(abs, ticks), default=0) >= 1e6:
        return [f"{tick:.3g}".replace("-", "\N{MINUS SIGN}") for tick in ticks]
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    decimals = next((n for n in range(9) if abs(step * 10**n - round(step * 10**n)) < 1e-6), 9)
    return [f"{tick + 0.0:,.{decimals}f}".replace("-", "\N{MINUS SIGN}") for tick in ticks]


def _nice_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))
