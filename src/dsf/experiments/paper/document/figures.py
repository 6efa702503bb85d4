"""Charts as SVG files of their own, in the look of the pages."""

from collections.abc import Sequence

from dsf.experiments.page.chart import Series, line_chart
from dsf.experiments.page.vega import svg


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
