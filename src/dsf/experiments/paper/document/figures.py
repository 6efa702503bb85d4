"""Charts as SVG files of their own, in the look of the pages."""

import re
from collections.abc import Sequence
from importlib.resources import files

from dsf.experiments.page.chart import HEIGHT, WIDTH, Series, line_chart
from dsf.experiments.page.markup import Markup, tag

_FONT = "font-family: system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def svg_file(
    identifier: str,
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    whole: bool = True,
) -> str:
    """A chart as a file.

    Args:
        identifier: of the chart.
        title: what it shows.
        series: its lines; see ``line_chart``.
        x_label: below the x axis.
        y_label: above the y axis.
        whole: ticks of the x axis are whole numbers.
    """
    names = ", ".join(line.name for line in series)
    chart = line_chart(identifier, title, names, series, x_label, y_label, whole)
    picture = tag(
        "svg",
        tag("style", Markup(_style())),
        tag("rect", width=WIDTH, height=HEIGHT, fill="#ffffff"),
        chart,
        xmlns="http://www.w3.org/2000/svg",
        width=WIDTH,
        height=HEIGHT,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
    )
    return f"{picture}\n"


def _style() -> str:
    """The rules for charts of the pages' style sheet, in its light colours.

    Written out, since programs that draw SVG files often know no variables.
    """
    sheet = files("dsf.experiments.page").joinpath("style.css").read_text(encoding="utf-8")
    light = sheet[: sheet.index("}")]
    colours = dict(re.findall(r"(--[\w-]+): (#\w+)", light))
    rules = [line for line in sheet.splitlines() if line.startswith(".chart")]
    rules = [re.sub(r"var\((--[\w-]+)\)", lambda name: colours[name[1]], rule) for rule in rules]
    return "\n".join([f"\n.chart text {{ {_FONT}; }}", *rules, ""])
