"""Numbers as a reader wants them, with a real minus sign."""

import math

_MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 3) -> str:
    """About ``digits`` significant digits, never an exponent within reason.

    Example:
        >>> number(6.93147), number(0.01234), number(51234.0), number(float("nan"))
        ('6.93', '0.0123', '51,234', 'not a number')
    """
    if not math.isfinite(value):
        return _not_finite(value)
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if not -12 < places < 8:
        return f"{value:.{digits - 1}e}".replace("-", _MINUS)
    return f"{value:,.{max(places, 0)}f}".replace("-", _MINUS)


def percent(share: float) -> str:
    """A share of 1 in per cent.

    Example:
        >>> percent(0.4567)
        '45.7 %'
    """
    return f"{100 * share:.1f} %" if math.isfinite(share) else _not_finite(share)


def points(share: float) -> str:
    """A difference of two shares in points, with its sign.

    Example:
        >>> points(0.1204), points(0.0)
        ('+12.0', '0.0')
    """
    if not math.isfinite(share):
        return _not_finite(share)
    rounded = round(100 * share, 1)
    return "0.0" if rounded == 0 else f"{rounded:+.1f}".replace("-", _MINUS)


def duration(seconds: float) -> str:
    """A time as one says it.

    Example:
        >>> duration(8.24), duration(243), duration(7384)
        ('8.2 s', '4 min 3 s', '2 h 3 min')
    """
    if not math.isfinite(seconds):
        return _not_finite(seconds)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "not a number"
    return "infinite" if value > 0 else f"{_MINUS}infinite"
