"""Corruptions of images: those of CIFAR-10-C and ImageNet-C, made in batches or read from files."""

from dsf.data.corruptions.apply import CORRUPTIONS, EXTRA, corrupt

__all__ = ["CORRUPTIONS", "EXTRA", "corrupt"]
