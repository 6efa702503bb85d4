"""HTML and SVG that are escaped by construction: plain text never becomes a tag."""

from collections.abc import Iterable
from html import escape
from typing import Final

_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})


class Markup(str):
    """A string that is HTML already, and is not escaped again."""

    __slots__ = ()


def text(content: object) -> Markup:
    """What shows the content as it is; ``Markup`` stays itself."""
    return content if isinstance(content, Markup) else Markup(escape(str(content)))


def join(parts: Iterable[object]) -> Markup:
    """The parts one after the other; None is left out."""
    return Markup("".join(text(part) for part in parts if part is not None))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element.

    Args:
        name: of the element.
        children: ``Markup``, or anything else as its text; None is left out.
        attributes: underscores stand for hyphens, one at the end is dropped (``class_``); True
            gives an attribute without a value, None and False none.

    Example:
        >>> print(tag("p", "a < b", tag("br"), class_="note"))
        <p class="note">a &lt; b<br></p>
    """
    words = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(attribute)
        elif value is not None and value is not False:
            words.append(f'{attribute}="{escape(str(value))}"')
    opening = f"<{' '.join(words)}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(children)}</{name}>")
