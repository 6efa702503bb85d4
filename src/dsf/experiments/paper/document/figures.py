"""Charts as SVG files of their own, in the look of the pages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsf.experiments.page.chart import Series, line_chart
from dsf.experiments.page.vega import svg
from dsf.files import write_file

FOLDER = "figures"


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
    return svg(line_chart(identifier, title, names, series, x_label, y_label, whole))
