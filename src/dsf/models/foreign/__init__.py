"""Checkpoints of other projects, read without running code and mapped to our encoders."""

from dsf.models.foreign.load import SUFFIXES, Foreign, load_foreign

__all__ = ["SUFFIXES", "Foreign", "load_foreign"]
