import subprocess
import sys
from pathlib import Path

import pytest
from release_notes import CHANGELOG, release_notes

SCRIPT = Path(__file__).parents[2] / "tools" / "release_notes.py"
TEXT = """# Changelog

Words before.

## Unreleased

### Added
- Something new.

## [1.1.0] - 2026-02-01

### Fixed
- Something old.

## 1.0.0
- The first.

## 0.9.0 - 2025-01-01
"""


def test_a_section_ends_where_the_next_begins():
    assert release_notes(TEXT, "1.1.0") == "### Fixed\n- Something old."
    assert release_notes(TEXT, "Unreleased") == "### Added\n- Something new."
    assert release_notes(TEXT, "1.0.0") == "- The first."


def test_unknown_versions():
    with pytest.raises(ValueError, match=r"one of Unreleased, 1\.1\.0, 1\.0\.0, 0\.9\.0; got '2'"):
        release_notes(TEXT, "2")


def test_an_empty_section():
    with pytest.raises(ValueError, match=r"says nothing about 0\.9\.0"):
        release_notes(TEXT, "0.9.0")


def test_of_this_project():
    def run(*arguments):
        command = [sys.executable, str(SCRIPT), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    printed = run()
    assert printed.returncode == 0
    assert printed.stdout.strip() in CHANGELOG.read_text(encoding="utf-8")
    assert printed.stdout.startswith("### ")
    failed = run("99.0")
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: version must be one of Unreleased")
