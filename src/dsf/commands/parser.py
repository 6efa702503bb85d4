"""Parsers whose help shows an example and whose errors are one line."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

# Values and names that will not do, and packages that are not installed. A full disk or a lost
# connection is nobody's wrong call.
_REFUSALS = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    ModuleNotFoundError,
)


class UsageError(Exception):
    """A command was called wrongly."""


@contextmanager
def asked() -> Iterator[Callable[[], None]]:
    """What is wrong in here is wrong with the call, until the function that it gives is called.

    So commands exit with 2 as long as they have not begun to work, and with 1 if they fail later.
    """
    begun = False

    def begin() -> None:
        nonlocal begun
        begun = True

    try:
        yield begin
    except _REFUSALS as error:
        if begun:
            raise
        raise UsageError(describe(error)) from error


def describe(error: Exception) -> str:
    """An error in words; those of the system with the file that they are about."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


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
