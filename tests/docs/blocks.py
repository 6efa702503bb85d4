"""The code blocks of a page, and how each is tried."""

import contextlib
import io
import re
import shlex
import tomllib
from pathlib import Path
from typing import NamedTuple

import yaml

from dsf import cli
from dsf.commands.reproduce import _select
from dsf.data.registry import EMBEDDED, find
from dsf.experiments import load_recipe, make_settings, recipe_names
from dsf.experiments.evaluations import NAMES
from dsf.experiments.paper.plan import load_plan, plan_names
from dsf.experiments.settings import check_batch

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>]+) -->\n+)?"
    r"^```(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_FENCE = re.compile(r"^\s*```", re.MULTILINE)


class Block(NamedTuple):
    """A block, and why it is not run."""

    language: str
    code: str
    reason: str | None


def blocks(text: str) -> list[Block]:
    """Those of a page, in order."""
    found = [
        Block(match["language"], match["code"], match["reason"]) for match in _BLOCK.finditer(text)
    ]
    if len(_FENCE.findall(text)) != 2 * len(found):
        raise ValueError("a fence is indented or not closed, so that its block would be missed")
    return found


class Page:
    """Tries the blocks of a page one after the other, in the current folder.

    Args:
        commands: run commands, where a page does not say why not; else only parse them.
    """

    def __init__(self, commands: bool = True) -> None:
        self.commands = commands
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.printed = ""

    def try_block(self, block: Block) -> None:
        """Run or check a block; raises where it is wrong."""
        match block.language:
            case "python":
                compiled = compile(block.code, "<block>", "exec")
                if block.reason is None:
                    with contextlib.redirect_stdout(io.StringIO()) as output:
                        exec(compiled, self.names)
                    self.printed = output.getvalue()
            case "text":  # what the block of Python before it prints
                if block.reason is None and block.code != self.printed:
                    raise ValueError(f"the page says\n{block.code}\nbut it prints\n{self.printed}")
            case "sh":
                for command in lines(block.code):
                    self._try_command(command, block.reason is None and self.commands)
            case "yaml":
                make_settings(yaml.safe_load(block.code))
            case other:
                raise ValueError(f"a block must be python, text, sh or yaml; got {other!r}")

    def _try_command(self, words: list[str], run: bool) -> None:
        processes = 1
        if "torchrun" in words:
            processes = _number(words, "--nnodes") * _number(words, "--nproc-per-node")
            words = ["dsf", *words[words.index("-m") + 2 :]]
        match words:
            case ["dsf", *arguments, ">", target] if run:
                with Path(target).open("w") as file, contextlib.redirect_stdout(file):
                    assert cli.main(arguments) == 0
            case ["dsf", *arguments] if run:
                assert cli.main(arguments) == 0
            case ["dsf", *arguments]:
                check(arguments, processes)
            case ["make", *targets]:
                known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
                assert set(targets) <= set(known)
            case ["pip", "install", what]:
                _check_requirement(what)
            case ["python", script, *_]:
                assert (ROOT / script).is_file()
            case _:
                raise ValueError(f"no way to check {' '.join(words)!r}")


def lines(code: str) -> list[list[str]]:
    """The commands of a script as words; assignments and comments are left out."""
    joined = code.replace("\\\n", " ")
    found = [shlex.split(line, comments=True) for line in joined.splitlines()]
    return [words for words in found if words and not re.match(r"\w+=", words[0])]


def check(arguments: list[str], processes: int = 1) -> None:
    """Raise if the command line would refuse it: names, settings and data sets are looked up."""
    options = cli._parse(cli.make_parser(), arguments)
    verb = arguments[0]
    if verb == "train" and options.recipe in recipe_names():
        check_batch(load_recipe(options.recipe, options.overrides), processes)
    elif verb == "train":
        assert options.list or options.resume or Path(options.recipe).suffix == ".yaml"
    elif verb == "eval":
        words = [*options.names, *options.overrides]
        assert {word for word in words if "=" not in word} <= set(NAMES)
    elif verb == "reproduce":
        words = [*options.words, *options.overrides]
        _select([load_plan(name) for name in plan_names()], [w for w in words if "=" not in w])
    elif verb == "data" and getattr(options, "name", EMBEDDED) != EMBEDDED:
        find(options.name, options.size)


def _number(words: list[str], option: str) -> int:
    return int(words[words.index(option) + 1]) if option in words else 1


def _check_requirement(what: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, _, extras = what.rstrip("]").partition("[")
    assert name in (project["name"], ".")  # or the clone one stands in
    assert set(filter(None, extras.split(","))) <= set(project["optional-dependencies"])
