"""Corruptions of images: those of CIFAR-10-C and ImageNet-C, made in batches or read from files."""

from dsf.data.corruptions.apply import CORRUPTIONS, EXTRA, corrupt
from dsf.data.corruptions.constants import SEVERITIES
from dsf.data.corruptions.published import Published, load_published
from dsf.data.corruptions.sheet import corruption_sheet

__all__ = [
    "CORRUPTIONS",
    "EXTRA",
    "SEVERITIES",
    "Published",
    "corrupt",
    "corruption_sheet",
    "load_published",
]
