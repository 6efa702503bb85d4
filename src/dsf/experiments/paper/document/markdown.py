"""Markdown: tables, and numbers in fixed formats."""

import math
from collections.abc import Sequence

NOTHING = "\N{EN DASH}"  # where nothing was measured
NOT_RUN = "*not run*"
_MINUS = "\N{MINUS SIGN}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table; all columns but the first ``words`` are aligned to the right.

    Example:
        >>> print(table(("run", "kNN"), [("a", "1.0")]))
        | run | kNN |
        |---|---:|
        | a | 1.0 |
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"rows must have {len(header)} cells, as the header; got {len(row)}")
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    lines = [f"| {' | '.join(header)} |", f"|{'|'.join(rule)}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def fixed(value: float | None, decimals: int = 2) -> str:
    """A number with so many decimals.

    Example:
        >>> fixed(90.037), fixed(-0.0001), fixed(1234.5, 0)
        ('90.04', '0.00', '1,234')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    text = f"{value:,.{decimals}f}"
    return (text.lstrip("-") if float(text.replace(",", "")) == 0 else text).replace("-", _MINUS)


def signed(value: float, decimals: int = 2) -> str:
    """A difference with its sign.

    Example:
        >>> signed(0.514), signed(0.001)
        ('+0.51', '0.00')
    """
    text = fixed(value, decimals)
    zero = text.strip("0.,") == ""
    return text if zero or text.startswith((_MINUS, NOTHING)) else f"+{text}"


def millions(value: float) -> str:
    """A count in millions."""
    return fixed(value / 1e6, 1)


def join(*parts: str | None) -> str:
    """Paragraphs one after the other; None and empty ones are left out."""
    return "\n\n".join(part for part in parts if part)
