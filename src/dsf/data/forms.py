"""Batches of views, in the forms that the training loops of others expect."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class ViewBatch(NamedTuple):
    """Views of some images.

    Args:
        views: (B, M, 3, H, W); of a ``MultiCrop`` that and the local ones, (B, L, 3, h, w).
        labels: (B,) int64, -1 where there are none.
        samples: (B,) int64, the indices of the images in their split.
    """

    views: Tensor | tuple[Tensor, Tensor]
    labels: Tensor
    samples: Tensor


Form = Callable[[ViewBatch], Any]
"""What a loop gets in place of a ``ViewBatch``."""


def lightly(batch: ViewBatch) -> tuple[list[Tensor], Tensor, Tensor]:
    """(views, labels, samples), as lightly's loops take it apart.

    ``views`` is a list of (B, 3, H, W), local ones last. The third entry would be file names
    there; it is indices here, which need not be fetched from the device.
    """
    return _listed(batch.views), batch.labels, batch.samples


def solo_learn(batch: ViewBatch) -> list[Any]:
    """[samples, views, labels], as solo-learn's ``training_step`` takes it apart.

    ``views`` is a list as in ``lightly``. A label of -1 is what its classifier ignores.
    """
    return [batch.samples, _listed(batch.views), batch.labels]


FORMS: dict[str, Form] = {
    "plain": lambda batch: batch,
    "lightly": lightly,
    "solo-learn": solo_learn,
}
"""The forms by name."""


def find_form(form: str | Form) -> Form:
    """A form by its name, or itself."""
    if not isinstance(form, str):
        return form
    if form not in FORMS:
        raise ValueError(f"form must be a function or one of {', '.join(FORMS)}; got {form!r}")
    return FORMS[form]


def _listed(views: Tensor | tuple[Tensor, Tensor]) -> list[Tensor]:
    # Each dense, in the order that convolutions are fastest with: they would copy it otherwise.
    kinds = views if isinstance(views, tuple) else (views,)
    dense = torch.contiguous_format if kinds[0].device.type == "cpu" else torch.channels_last
    return [view.contiguous(memory_format=dense) for kind in kinds for view in kind.unbind(1)]
