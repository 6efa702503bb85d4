"""What a page shows, kept for files of their own."""

from dataclasses import replace
from pathlib import Path

from PIL import Image

from dsf.experiments.page.markup import Markup
from dsf.experiments.page.pictures import encoded
from dsf.experiments.page.vega import Chart, embedded, png, svg
from dsf.files import write_file


class Figures:
    """The charts and pictures of a page by their names."""

    def __init__(self) -> None:
        self.charts: dict[str, Chart] = {}
        self.pictures: dict[str, Image.Image] = {}

    def draw(self, chart: Chart) -> Markup:
        """Keep a chart, and give what shows it on the page; of equal names one gets a number."""
        name, count = chart.name, 1
        while name in self.charts:
            count += 1
            name = f"{chart.name}-{count}"
        self.charts[name] = replace(chart, name=name)
        return embedded(self.charts[name])

    def write(self, folder: Path) -> list[Path]:
        """Write charts as SVG and PNG, pictures as PNG; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {f"{name}.png": encoded(image, "PNG") for name, image in self.pictures.items()}
        for name, chart in self.charts.items():
            content |= {f"{name}.svg": svg(chart).encode(), f"{name}.png": png(chart)}
        for name, data in content.items():
            write_file(folder / name, data)
        return [folder / name for name in content]
