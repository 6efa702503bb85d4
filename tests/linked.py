"""Environments made of links: a folder with some of the packages that are here, and no others."""

import re
from importlib import metadata
from pathlib import Path


def link(names, folder):
    """Link distributions and all that they require, without extras, into a folder."""
    wanted = set()
    for name in names:
        _require(name, wanted)
    for name in wanted:
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files}:
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(Path(distribution.locate_file(top)))


def _require(name, found):
    if name in found:
        return
    found.add(name)
    for line in metadata.requires(name) or ():
        requirement, _, marker = line.partition(";")
        needed = distribution_name(requirement)
        if "extra ==" in marker:
            continue
        try:
            metadata.distribution(needed)
        except metadata.PackageNotFoundError:  # for other systems or versions
            continue
        _require(needed, found)


def distribution_name(requirement):
    """Of a requirement such as torch>=2.11."""
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")
