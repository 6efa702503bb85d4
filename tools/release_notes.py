"""Print what the changelog says of a version.

    python tools/release_notes.py [VERSION]     # or `make notes VERSION=1.2.0`

Without a version it is what is not released yet.
"""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
UNRELEASED = "Unreleased"

# "## 1.2.0", "## [1.2.0]", either with a date behind it.
_HEADING = re.compile(r"(?m)^## \[?(?P<version>[^\]\s]+)\]?(?: .*)?$")


def release_notes(changelog: str, version: str) -> str:
    """The section of a version, without its heading.

    Raises:
        ValueError: if there is no such section, or nothing in it.
    """
    headings = list(_HEADING.finditer(changelog))
    ends = [heading.start() for heading in headings[1:]] + [len(changelog)]
    sections = {
        heading["version"]: changelog[heading.end() : end].strip()
        for heading, end in zip(headings, ends, strict=True)
    }
    if version not in sections:
        raise ValueError(f"version must be one of {', '.join(sections)}; got {version!r}")
    if not sections[version]:
        raise ValueError(f"the changelog says nothing about {version}")
    return sections[version]


def main() -> None:
    """Print the section, or say what is wrong."""
    version = sys.argv[1] if len(sys.argv) > 1 else UNRELEASED
    try:
        print(release_notes(CHANGELOG.read_text(encoding="utf-8"), version))
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
