"""Charts as SVG files of their own, in the look of the pages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from dsf.data.files import write_file
from dsf.experiments.page.chart import HEIGHT, WIDTH, Series, line_chart
from dsf.experiments.page.markup import Markup, tag

FOLDER = "figures"
_FONT = "font-family: system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass
class Figures:
    """The figures of a chapter: drawn where the text wants them, written at the end.

    Args:
        name: of their folder, below that of all figures.
        files: SVG by the name of the file.
    """

    name: str
    files: dict[str, str] = field(default_factory=dict)

    def draw(
        self,
        name: str,
        title: str,
        series: Sequence[Series],
        x_label: str,
        y_label: str,
        whole: bool = True,
    ) -> str | None:
        """Draw a chart, and give the line that shows it; None if there is nothing to draw."""
        drawn = [line for line in series if line.finite]
        if not drawn:
            return None
        self.files[f"{name}.svg"] = svg_file(name, title, drawn, x_label, y_label, whole)
        return f"![{title}]({FOLDER}/{self.name}/{name}.svg)"

    def write(self, folder: Path) -> None:
        """Write them below the folder of the document; those that are drawn no more go."""
        own = folder / FOLDER / self.name
        for old in own.glob("*.svg"):
            if old.name not in self.files:
                old.unlink()
        for name, content in self.files.items():
            own.mkdir(parents=True, exist_ok=True)
            write_file(own / name, content.encode())


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
