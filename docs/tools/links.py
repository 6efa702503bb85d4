"""List the links that lead out of the repository: ``make links``. Nothing is fetched."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ADDRESS = re.compile(r"https?://[^\s)>\]\"'`]+")


def external_links() -> dict[str, list[str]]:
    """Each address, with the pages that have it."""
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    found: dict[str, list[str]] = {}
    for page in pages:
        for address in sorted(set(_ADDRESS.findall(page.read_text(encoding="utf-8")))):
            found.setdefault(address.rstrip(".,;"), []).append(str(page.relative_to(ROOT)))
    return dict(sorted(found.items()))


if __name__ == "__main__":
    for address, pages in external_links().items():
        print(address, *pages, sep="  ")
