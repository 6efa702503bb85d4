"""Charts by Vega-Lite: one description, drawn by the browser in a page and by Vega for a file."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from dsf.experiments.page.markup import Markup, join, tag

WIDTH, HEIGHT = 460, 270  # of a chart as a file; in a page it is as wide as its place
HOVER = "hover"  # the layer that answers to the pointer, which a file has none of
COLOURS = tuple(
    f"var(--{name})" for name in ("accent", "second", "third", "fourth", "c6", "c3", "c1", "c5")
)
DASHES: tuple[list[int], ...] = ([1, 0], [7, 4], [2, 4], [9, 3, 2, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down")
# The library brings this font: texts have the same widths, and charts the same bytes, everywhere.
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_PPI = 300  # what journals ask for
_CONFIG: Mapping[str, Any] = {
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--ink)",
        "gridColor": "var(--rule)",
        "domainColor": "var(--quiet)",
        "tickColor": "var(--quiet)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "axisX": {"grid": False, "labelFlush": False},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6, "tickCount": 5},
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "symbolStrokeWidth": 2,
        "symbolLimit": 0,
    },
}


@dataclass(frozen=True)
class Chart:
    """A picture of numbers.

    Args:
        name: of its files, and after "chart-" its id on a page.
        title: what it shows.
        description: what a screen reader says of it.
        spec: of Vega-Lite, without sizes but for a height that depends on the data; colours are
            variables of the style sheet.
        height: in pixels, where the spec does not say.
    """

    name: str
    title: str
    description: str
    spec: Mapping[str, Any] = field(repr=False)
    height: int = HEIGHT


def embedded(chart: Chart) -> Markup:
    """The chart in a page, which must have ``page_script`` at its end."""
    spec = {
        "width": "container",
        "height": chart.height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": "transparent",
        "description": f"{chart.title}. {chart.description}",
        **chart.spec,
        "config": _CONFIG,
    }
    # The text of a script ends at the first "</", wherever that stands.
    content = json.dumps(spec, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return join(
        (
            # A section may have the name of its chart.
            tag("div", id=f"chart-{chart.name}", class_="chart"),
            tag("script", Markup(content), type="application/json", data_chart=chart.name),
        )
    )


def svg(chart: Chart) -> str:
    """The chart as an SVG file, in light colours."""
    return f"{_library().vegalite_to_svg(_alone(chart))}\n"


def png(chart: Chart) -> bytes:
    """The chart as a PNG file at 300 points an inch, in light colours."""
    return bytes(_library().vegalite_to_png(_alone(chart), ppi=_PPI))


def page_script() -> tuple[Markup, str]:
    """What draws the charts of a page, and its source for a content security policy."""
    content = f"{_bundle()}\n{files(__package__).joinpath('charts.js').read_text('utf-8')}"
    if "</script" in content.lower() or "<!--" in content:
        raise ValueError("the script must not hold '</script' or '<!--', which would end it")
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
    return tag("script", Markup(content)), f"'sha256-{digest}'"


def legend_of(names: Sequence[str]) -> dict[str, Any]:
    """A legend below a chart, with as many columns as its names leave room for on a phone."""
    longest = max(map(len, names))
    columns = 1 if longest > 18 else 2 if longest > 10 else 3
    return {"columns": min(columns, len(names)), "labelLimit": 260}


def light_colours() -> dict[str, str]:
    """The colours of the style sheet by name, as they are on white."""
    sheet = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--([\w-]+): (#\w+)", sheet[: sheet.index("}")]))


def _alone(chart: Chart) -> str:
    """The spec of a file: nothing that answers to a pointer, colours written out."""
    spec = {"width": WIDTH, "height": chart.height, **chart.spec}
    spec |= {
        "background": "#ffffff",
        "description": f"{chart.title}. {chart.description}",
        "padding": 8,
        "config": {**_CONFIG, "font": _FONT},
    }
    layers = [layer for layer in spec.get("layer", ()) if layer.get("name") != HOVER]
    if layers:
        spec["layer"] = layers
    colours = light_colours()
    text = json.dumps(spec, ensure_ascii=False)
    return re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], text)


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, as the library holds them."""
    return str(_library().javascript_bundle())


def _library() -> Any:
    try:
        import vl_convert
    except ImportError as error:  # where it was left out, or there is no build for the machine
        raise ValueError(
            "charts need the package vl-convert-python: pip install vl-convert-python"
        ) from error
    return vl_convert
