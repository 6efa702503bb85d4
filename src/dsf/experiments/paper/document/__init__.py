"""The document of results: Markdown and SVG made from result files alone, always the same bytes."""

from dsf.experiments.paper.document.book import Book
from dsf.experiments.paper.document.build import DOCUMENT, NOTES, render

__all__ = ["DOCUMENT", "NOTES", "Book", "render"]
