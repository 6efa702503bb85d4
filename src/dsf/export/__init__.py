"""Trained encoders for other libraries: their weights, how to load them, and what they reached."""

from dsf.export.export import TARGETS, Exported, export_run

__all__ = ["TARGETS", "Exported", "export_run"]
