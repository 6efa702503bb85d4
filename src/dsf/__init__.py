"""Multi-view contrastive learning with divergences between distributions of views."""

__version__ = "0.1.0.dev0"
