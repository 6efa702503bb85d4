"""Maps of features: a point an image, a colour and a shape a class."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsf.experiments.page.chart import mark, mark_outline
from dsf.experiments.page.markup import Markup, join, tag

WIDTH, HEIGHT = 460, 400
_MARGIN = 10.0
_COLOURS, _SHAPES = 10, 5


def feature_map(
    identifier: str,
    title: str,
    description: str,
    coordinates: Tensor,
    labels: Tensor,
    classes: Sequence[str],
) -> Markup:
    """A picture of (N, 2) coordinates in one scale for both directions; no axes, they mean nothing.

    A large mark is the mean of a class. Points that are not finite are left out.
    """
    places = _placed(coordinates.double().cpu())
    groups, means = [], []
    for number, name in enumerate(classes):
        members = places[labels.cpu() == number]
        members = members[members.isfinite().all(dim=1)]
        outlines = (mark_outline(_shape(number), x, y, 2.6) for x, y in members.tolist())
        path = tag("path", d="".join(outlines))
        groups.append(tag("g", tag("title", name), path, class_=_style(number)))
        if len(members):
            x, y = members.mean(dim=0).tolist()
            large = mark(_shape(number), x, y, 6.5)
            label = tag("title", f"mean of {name}")
            means.append(tag("g", label, large, class_=f"{_style(number)} mean"))
    return tag(
        "svg",
        tag("title", title, id=f"{identifier}-title"),
        tag("desc", description, id=f"{identifier}-desc"),
        *groups,
        *means,
        class_="map",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{identifier}-title {identifier}-desc",
    )


def map_legend(identifier: str, classes: Sequence[str]) -> Markup:
    """The classes with their marks; choosing one fades the others, by ``map_style``."""
    entries = [_choice(identifier, "all", tag("span", "all"), checked=True)]
    for number, name in enumerate(classes):
        sample = tag(
            "svg",
            tag("g", mark(_shape(number), 8, 8, 5), class_=_style(number)),
            class_="sample",
            viewBox="0 0 16 16",
            aria_hidden="true",
        )
        entries.append(_choice(identifier, str(number), join((sample, tag("span", name)))))
    legend = tag("legend", "Show")
    return tag("fieldset", legend, *entries, class_="map-legend")


def map_style(identifier: str, classes: Sequence[str]) -> str:
    """The style sheet that makes the legend work, for the head of the page."""
    return "\n".join(
        f".maps:has(#{identifier}-{number}:checked) .map .k:not(.k{number}) {{ opacity: 0.06; }}"
        for number in range(len(classes))
    )


def _choice(identifier: str, value: str, label: Markup, checked: bool = False) -> Markup:
    button = tag(
        "input",
        type="radio",
        name=identifier,
        id=f"{identifier}-{value}",
        checked=checked,
    )
    return tag("label", button, label)


def _style(number: int) -> str:
    return f"k k{number} c{number % _COLOURS}"


def _shape(number: int) -> int:
    return (number + number // _COLOURS) % _SHAPES


def _placed(coordinates: Tensor) -> Tensor:
    """Centred in the picture, as large as fits."""
    finite = coordinates[coordinates.isfinite().all(dim=1)]
    if not len(finite):
        return coordinates
    low, high = finite.amin(dim=0), finite.amax(dim=0)
    room = torch.tensor([WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN], dtype=torch.float64)
    spread = (high - low).clamp(min=1e-12)
    scale = (room / spread).min().clamp(max=1e12)
    centre = torch.tensor([WIDTH / 2, HEIGHT / 2], dtype=torch.float64)
    flipped = torch.tensor([1.0, -1.0], dtype=torch.float64)  # y grows downwards on paper
    return centre + (coordinates - (low + high) / 2) * scale * flipped
