"""Multi-view contrastive learning with divergences between distributions of views."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsf.models import from_pretrained

__version__ = "0.1.0.dev0"

__all__ = ["__version__", "from_pretrained"]


def __getattr__(name: str) -> Any:
    if name != "from_pretrained":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dsf.models import from_pretrained

    return from_pretrained
