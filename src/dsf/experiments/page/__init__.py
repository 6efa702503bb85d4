"""Runs as one HTML page: charts, tables and pictures, nothing that must be fetched."""

from dsf.experiments.page.build import Page, make_page
from dsf.experiments.page.features import Look, look
from dsf.experiments.page.gallery import Gallery, Pictures, Seen, Sheet
from dsf.experiments.page.lack import Lack
from dsf.experiments.page.run import Run, read_run, read_runs

__all__ = [
    "Gallery",
    "Lack",
    "Look",
    "Page",
    "Pictures",
    "Run",
    "Seen",
    "Sheet",
    "look",
    "make_page",
    "read_run",
    "read_runs",
]
