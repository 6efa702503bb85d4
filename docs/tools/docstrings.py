"""Docstrings as Markdown: examples in fences, without the roles that Sphinx has."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*|\n(?P=indent) .*)*", re.MULTILINE)
_ROLE = re.compile(r":(?:class|func|meth|mod):`~?(?P<name>[^`]+)`")


class Docstrings(griffe.Extension):
    """What Griffe does with each docstring that it reads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring of ours as Markdown."""

    def fenced(found: re.Match[str]) -> str:
        indent = found["indent"]
        return f"{indent}```pycon\n{found[0]}\n{indent}```"

    return _EXAMPLE.sub(fenced, _ROLE.sub(r"`\g<name>`", text))
