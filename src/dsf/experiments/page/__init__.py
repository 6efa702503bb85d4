"""A run as one HTML page: curves, tables and pictures, nothing that must be fetched."""

from dsf.experiments.page.build import run_page
from dsf.experiments.page.features import Look, look
from dsf.experiments.page.gallery import Gallery
from dsf.experiments.page.run import Run, read_run

__all__ = ["Gallery", "Look", "Run", "look", "read_run", "run_page"]
