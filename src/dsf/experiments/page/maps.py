"""Maps of features: a point an image, a colour and a shape a class."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dsf.experiments.page.vega import SHAPES, Chart, legend_of

_COLOURS = 10
_HEIGHT = 360
_NAMED = 20  # with more classes than this a legend would be larger than the map
_ROOM = 1.04  # so that no mark is cut off


def feature_map(
    name: str,
    title: str,
    description: str,
    coordinates: Tensor,
    labels: Tensor,
    classes: Sequence[str],
) -> Chart:
    """A picture of (N, 2) coordinates in one scale for both directions; no axes, they mean nothing.

    A large mark is the mean of a class. Points that are not finite are left out. A click on a
    class in the legend shows it alone.
    """
    places = coordinates.double().cpu()
    finite = places.isfinite().all(dim=1)
    places, kept = places[finite], labels.cpu()[finite].tolist()
    rows = [
        {"x": round(x, 4), "y": round(y, 4), "class": classes[label]}
        for (x, y), label in zip(places.tolist(), kept, strict=True)
    ]
    means = []
    for label in sorted(set(kept)):
        x, y = places[labels.cpu()[finite] == label].mean(dim=0).tolist()
        means.append({"x": round(x, 4), "y": round(y, 4), "class": classes[label]})
    style = {
        "x": _axis(places, 0),
        "y": _axis(places, 1),
        "color": _by_class(classes, [f"var(--c{n % _COLOURS})" for n in range(len(classes))]),
        "shape": _by_class(classes, [_shape(n) for n in range(len(classes))]),
        "tooltip": {"field": "class"},
    }

    def layer(values: list[dict[str, Any]], opacity: float, **mark: object) -> dict[str, Any]:
        chosen = {"condition": {"param": "chosen", "value": opacity}, "value": 0.05}
        return {
            "data": {"values": values},
            "mark": {"type": "point", "filled": True, **mark},
            "encoding": style | {"opacity": chosen},
        }

    small, large = layer(rows, 0.7, size=26), layer(means, 1.0, size=190)
    large["mark"] |= {"stroke": "var(--card)", "strokeWidth": 1.5}
    choice = {"type": "point", "fields": ["class"]}
    small["params"] = [{"name": "chosen", "select": choice, "bind": "legend"}]
    return Chart(name, title, description, {"layer": [small, large]}, height=_HEIGHT)


def _axis(places: Tensor, direction: int) -> dict[str, Any]:
    """Centred; the scale is that of the direction which needs more room."""
    low = places.amin(dim=0).tolist() if len(places) else [0.0, 0.0]
    high = places.amax(dim=0).tolist() if len(places) else [0.0, 0.0]
    half = [max((b - a) / 2, 1e-12) * _ROOM for a, b in zip(low, high, strict=True)]
    centre = (low[direction] + high[direction]) / 2
    # Half the range of y, in which half of x's fits too.
    needed = f"max({half[1]:.6g}, {half[0]:.6g} * height / width)"
    reach = needed if direction else f"{needed} * width / height"
    return {
        "field": "xy"[direction],
        "type": "quantitative",
        "axis": None,
        "scale": {
            "zero": False,
            "nice": False,
            "domainMin": {"expr": f"{centre:.6g} - {reach}"},
            "domainMax": {"expr": f"{centre:.6g} + {reach}"},
        },
    }


def _by_class(classes: Sequence[str], values: list[str]) -> dict[str, Any]:
    legend = None
    if len(classes) <= _NAMED:
        legend = legend_of(classes) | {"symbolOpacity": 1}
    return {
        "field": "class",
        "type": "nominal",
        "scale": {"domain": list(classes), "range": values},
        "legend": legend,
    }


def _shape(number: int) -> str:
    return SHAPES[(number + number // _COLOURS) % len(SHAPES)]
