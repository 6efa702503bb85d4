"""Every code block of the README and of the site is run, or at least checked."""

import pytest
import torch
from blocks import ROOT, Block, Page, blocks, check, lines

from dsf.commands.parser import UsageError

DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """An empty folder, no data sets and no GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "stores"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with torch.random.fork_rng():
        yield


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page(name, alone):
    page = Page()
    for block in blocks((DOCS / name).read_text(encoding="utf-8")):
        page.try_block(block)


def test_the_commands_of_the_readme(alone):
    """Its Python is run by ``test_package``; its commands want hours or data sets."""
    page = Page(commands=False)
    for block in blocks((ROOT / "README.md").read_text(encoding="utf-8")):
        if block.language == "sh":
            page.try_block(block)


def test_blocks_are_found_with_their_reasons():
    text = "a\n<!-- not run: takes hours -->\n```sh\ndsf demo\n```\n\n```python\n1\n```\n"
    assert blocks(text) == [Block("sh", "dsf demo\n", "takes hours"), Block("python", "1\n", None)]
    with pytest.raises(ValueError, match="indented"):
        blocks("- a\n\n  ```sh\n  dsf demo\n  ```\n")


def test_a_drawing_is_compared_with_nothing():
    Page().try_block(Block("text", "a tree\n", "a drawing"))


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "raise AssertionError"),
        ("text", "not printed\n"),
        ("sh", "dsf train demo epochs=0\n"),
        ("sh", "make nothing\n"),
        ("sh", "pip install 'dsf-ssl[nothing]'\n"),
        ("sh", "python examples/nothing.py\n"),
        ("yaml", "epochs: 0\n"),
    ],
)
def test_wrong_blocks_are_found(language, code, alone):
    with pytest.raises((AssertionError, ValueError)):
        Page().try_block(Block(language, code, None))


@pytest.mark.parametrize(
    "line",
    [
        "train demo optimizer.lr=1",
        "eval runs/demo neighbours",
        "data prepare cifar11",
        "reproduce table99",
        "report",
    ],
)
def test_wrong_commands_are_found_without_being_run(line):
    with pytest.raises((AssertionError, ValueError, UsageError)):
        check(line.split())


def test_scripts_are_split_into_commands():
    assert lines("#!/bin/sh\n# a\nhead=$(x)\ndsf train \\\n  demo # b\n") == [
        ["dsf", "train", "demo"]
    ]
