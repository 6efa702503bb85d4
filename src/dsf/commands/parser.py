"""Parsers whose help shows an example and whose errors are one line."""

import argparse
from typing import Any, NoReturn


class UsageError(Exception):
    """A command was called wrongly."""


def positive(text: str) -> int:
    """The type of an option that counts something."""
    return _at_least(1, text)


def seed(text: str) -> int:
    """The type of an option that is a seed."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"must be a whole number >= {least}; got {text!r}")
    return value


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` with an example at the end of its help.

    Args:
        example: command lines that work as they stand.
        options: as for ``ArgumentParser``.
    """

    def __init__(self, *, example: str = "", **options: Any) -> None:
        lines = "\n".join(f"  {line}" for line in example.splitlines())
        super().__init__(
            epilog=f"example:\n{lines}" if example else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage before the message."""
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def add_verbs(self) -> "argparse._SubParsersAction[Parser]":
        """Room for verbs, one of which must be given."""
        return self.add_subparsers(
            title="verbs", dest=f"{self.prog} verb", metavar="VERB", required=True
        )
