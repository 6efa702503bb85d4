import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dsf
from dsf import cli

ROOT = Path(__file__).parents[1]


def parsers(parser):
    """A parser and all of its verbs'."""
    yield parser
    for action in parser._actions:
        if hasattr(action, "choices") and isinstance(action.choices, dict):
            for verb in action.choices.values():
                yield from parsers(verb)


PARSERS = list(parsers(cli.make_parser()))


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_help_fits_a_screen_and_shows_an_example(parser, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = parser.format_help().splitlines()
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    start = lines.index("example:")
    assert lines[start + 1].startswith("  dsf ")


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_examples_can_be_parsed(parser):
    for line in parser.epilog.splitlines()[1:]:
        assert cli.make_parser().parse_args(line.split()[1:]).run


def test_module_and_entry_point():
    run = subprocess.run(
        [sys.executable, "-m", "dsf", "--version"], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"dsf {dsf.__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"dsf": "dsf.cli:main"}


def test_help_does_not_wait_for_torch():
    code = "import sys, dsf.cli as cli; cli.make_parser(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("that is wrong"), 1, "dsf: that is wrong\n"),
        (OSError(28, "No space left"), 1, "dsf: No space left\n"),
        (OSError(2, "No such file", "a.txt"), 1, "dsf: a.txt: No such file\n"),
        (FileNotFoundError("not there"), 1, "dsf: not there\n"),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            1,
            "dsf: torch and torchvision do not work together (operator torchvision::nms does not "
            "exist): install both anew, of the same kind, for a CPU or for CUDA\n",
        ),
        (cli.UsageError("not so"), 2, "dsf: not so\n"),
        (KeyboardInterrupt(), 130, "dsf: interrupted\n"),
        (KeyboardInterrupt("go on"), 130, "dsf: interrupted; go on\n"),
    ],
)
def test_errors_are_one_line(monkeypatch, capsys, error, code, message):
    def fail(options):
        raise error

    monkeypatch.setattr("dsf.commands.data._list", fail)
    assert cli.main(["data", "list"]) == code
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize("arguments", [[], ["data"], ["nothing"], ["data", "list", "--what"]])
def test_wrong_calls(capsys, arguments):
    assert cli.main(arguments) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert "--help`" in errors


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [(["eval"], "RUN|ENCODER|FILE"), (["data", "show"], "NAME, -o"), (["bench"], "WHAT")],
)
def test_only_what_is_required_is_asked_for(capsys, arguments, missing):
    assert cli.main(arguments) == 2
    assert f"arguments are required: {missing}; see" in capsys.readouterr().err


def test_a_reader_that_stops_reading():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        command = [sys.executable, "-m", "dsf", "data", "list"]
        run = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True)
    assert run.stderr == ""
    assert run.returncode == 1
