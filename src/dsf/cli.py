"""The command line: parses, calls, prints. Each verb is a module of ``dsf.commands``."""

import argparse
import os
import sys
from collections.abc import Sequence

from dsf import __version__
from dsf.allocator import keep_freed_memory
from dsf.commands import bench, data, demo, export, report, reproduce, train
from dsf.commands import eval as evaluation
from dsf.commands.parser import Parser, UsageError, describe

# A verb is a module with ``add(verbs)``, which adds its parser and sets ``run`` as a default: a
# function of the parsed arguments that may return an exit code. Modules import what is slow inside
# that function.
VERBS = (demo, data, train, evaluation, report, export, reproduce, bench)

_DESCRIPTION = """\
Multi-view contrastive learning with divergences between distributions of views.
Exit codes: 0 done, 1 failed at work, 2 could not begin, 75 stopped and saved."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0; 1 if it failed while it worked; 2 if it could not begin, because of what it was given;
        130 after Ctrl-C; or a code of the verb, such as 75 of training that saved and stopped.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names of files may be any bytes
            stream.reconfigure(errors="backslashreplace")
    # Before torch starts its threads, which would otherwise burn a core whenever one waits.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    keep_freed_memory()
    parser = make_parser()
    try:
        options = _parse(parser, arguments)
        code = options.run(options)
        sys.stdout.flush()
    except UsageError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        # Whoever read the output has seen enough; without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError) as error:
        return _fail(describe(error), 1)
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        return _fail(
            f"torch and torchvision do not work together ({error}): install both anew, of the same "
            "kind, for a CPU or for CUDA",
            1,
        )
    except KeyboardInterrupt as interrupt:
        return _fail("; ".join(("interrupted", *map(str, interrupt.args))), 130)
    return code or 0


def make_parser() -> Parser:
    """The parser with all verbs."""
    parser = Parser(
        prog="dsf",
        description=_DESCRIPTION,
        example="dsf demo",
    )
    parser.add_argument("--version", action="version", version=f"dsf {__version__}")
    verbs = parser.add_verbs()
    for verb in VERBS:
        verb.add(verbs)
    return parser


def _parse(parser: Parser, arguments: Sequence[str] | None) -> argparse.Namespace:
    # argparse takes positional arguments from one place only; settings may stand anywhere, and so
    # may all words of a verb that says so.
    options, rest = parser.parse_known_args(arguments)
    free = getattr(options, "words_anywhere", False)
    settings = [word for word in rest if not word.startswith("-") and (free or "=" in word)]
    if rest and (settings != rest or not hasattr(options, "overrides")):
        verb = getattr(options, f"{parser.prog} verb")
        wrong = [word for word in rest if word not in settings] or rest
        hint = _setting(wrong[0]) if hasattr(options, "overrides") else ""
        raise UsageError(
            f"unrecognized arguments: {' '.join(wrong)}{hint}; see `{parser.prog} {verb} --help`"
        )
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def _setting(option: str) -> str:
    """How a setting is given that somebody took for an option."""
    if not option.startswith("--"):
        return ""
    from dsf.experiments.recipe import setting_paths

    name = option.removeprefix("--").partition("=")[0].replace("-", "_")
    found = " or ".join(f"{path}=VALUE" for path in setting_paths(name))
    return f"; a setting is given as {found}" if found else ""


def _fail(message: str, code: int) -> int:
    print(f"dsf: {message}", file=sys.stderr)
    return code
