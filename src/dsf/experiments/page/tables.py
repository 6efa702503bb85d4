"""Tables: rows in, markup out."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from dsf.experiments.page.markup import Markup, tag, text

DASH = "\N{EN DASH}"  # where nothing was measured


def table(
    caption: str, header: Sequence[object], rows: Sequence[Sequence[object]], numbers: Sequence[int]
) -> Markup:
    """A table whose first column names its rows.

    Args:
        caption: what it holds.
        header: a cell for each column.
        rows: as wide as the header; ``Markup`` stays as it is.
        numbers: the columns that are aligned to the right.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"rows must have {len(header)} cells, as the header; got {len(row)}")

    def style(column: int) -> str | None:
        return "number" if column in numbers else None

    head = (tag("th", cell, scope="col", class_=style(n)) for n, cell in enumerate(header))
    body = (
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=style(n)) for n, cell in enumerate(row[1:], 1)),
        )
        for row in rows
    )
    whole = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body)
    )
    # A wide table scrolls by itself instead of pushing the page aside; so it takes the focus.
    return tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)


def pairs(values: Mapping[str, object]) -> Markup:
    """Names and values, in as many columns as there is room for."""
    entries = (
        tag("div", tag("dt", name), tag("dd", shown(value))) for name, value in values.items()
    )
    return tag("dl", *entries, class_="pairs")


def breakable(path: str) -> Markup:
    """A dotted path that may go on in the next line after a dot or an underscore."""
    return Markup(re.sub(r"([._])", r"\1<wbr>", text(path)))


def flattened(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Nested mappings as dotted paths.

    Example:
        >>> dict(flattened({"loss": {"name": "dsf", "shrink": 0.95}, "epochs": 20}))
        {'loss.name': 'dsf', 'loss.shrink': 0.95, 'epochs': 20}
    """
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{path}.")
        else:
            yield path, value


def shown(value: object) -> object:
    """A value as a YAML file has it, numbers to six digits.

    Example:
        >>> shown([0.1, 3.1622776601683795e-05]), shown(None), shown(True), shown("cifar")
        ('[0.1, 3.16228e-05]', 'null', 'true', 'cifar')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(str(shown(part)) for part in value)}]"
    return json.dumps(value, ensure_ascii=False, default=str)
