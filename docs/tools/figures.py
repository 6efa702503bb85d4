"""Draw the pictures of the site into docs/figures/idea: ``make figures``."""

import json
import math
from pathlib import Path

import torch
from torch import Tensor, nn

from dsf.data import EpochSampler, Split, load
from dsf.data.augment import RECIPES, Recipe, Views
from dsf.data.sheet import view_sheet
from dsf.experiments.page.chart import Series, line_chart
from dsf.experiments.page.pictures import encoded
from dsf.experiments.page.vega import COLOURS, SHAPES, Chart, legend_of, svg
from dsf.files import write_file
from dsf.losses import DSFSimilarity
from dsf.vmf import VonMisesFisher, fit_views, kl_divergence, log_normalizer

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "figures" / "idea"
RUN = ROOT / "results" / "runs" / "cifar10-dsf-60"
IMAGES, VIEWS, SEED = 6, 8, 3
P = 128


def charts() -> list[Chart]:
    """All charts, the same in every call."""
    return [sphere(), density(), matrix(), similarity(), training(), severity()]


def sphere() -> Chart:
    """Views of three images on the sphere of three dimensions, seen from the front."""
    generator = torch.Generator().manual_seed(0)
    points, means = [], []
    centres = torch.tensor([[-0.55, 0.35], [0.5, 0.5], [0.1, -0.55]], dtype=torch.float64)
    concentrations = (200.0, 40.0, 10.0)
    for number, (centre, kappa) in enumerate(zip(centres, concentrations, strict=True)):
        mu = torch.cat([centre, (1 - centre.square().sum()).sqrt()[None]])
        with torch.random.fork_rng():
            torch.manual_seed(int(torch.randint(1 << 30, (1,), generator=generator)))
            views = VonMisesFisher(mu, torch.tensor(kappa, dtype=torch.float64)).sample((40,))
        found = fit_views(views, shrink=1.0, estimator="mle")
        name = f"image {number + 1}: κ = {found.kappa:.0f}"
        points += [{"x": x, "y": y, "image": name} for x, y, z in _rounded(views) if z > 0]
        x, y, _ = _rounded((found.mu * found.resultant)[None])[0]
        means.append({"x": x, "y": y, "x0": 0, "y0": 0, "image": name})
    angles = [2 * math.pi * step / 180 for step in range(181)]
    circle = [
        {"x": round(math.cos(a), 4), "y": round(math.sin(a), 4), "n": n}
        for n, a in enumerate(angles)
    ]
    names = [row["image"] for row in means]
    colour = {
        "field": "image",
        "type": "nominal",
        "scale": {"domain": names, "range": list(COLOURS[: len(names)])},
        "legend": legend_of(names),
    }
    shape = {**colour, "scale": {"domain": names, "range": list(SHAPES[: len(names)])}}
    axis = {"type": "quantitative", "axis": None, "scale": {"domain": [-1.05, 1.05]}}
    place = {"x": {"field": "x", **axis}, "y": {"field": "y", **axis}}
    layers = [
        {
            "data": {"values": circle},
            "mark": {"type": "line", "color": "var(--quiet)", "strokeWidth": 1},
            "encoding": {**place, "order": {"field": "n"}},
        },
        {
            "data": {"values": points},
            "mark": {"type": "point", "filled": True, "size": 34, "opacity": 0.65},
            "encoding": {**place, "color": colour, "shape": shape},
        },
        {
            "data": {"values": means},
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {
                **place,
                "x2": {"field": "x0"},
                "y2": {"field": "y0"},
                "color": colour,
            },
        },
    ]
    text = "Points are views, rules the means of their directions; the tighter, the longer."
    spec = {"width": 380, "height": 380, "layer": layers}
    return Chart("sphere", "Views of three images on the sphere", text, spec)


def density() -> Chart:
    """How the cosine to the mean direction is distributed in many dimensions."""
    cosines = torch.linspace(-0.45, 0.999, 290, dtype=torch.float64)
    # The ring of vectors with that cosine: a sphere of one dimension less.
    ring = math.log(2) + (P - 1) / 2 * math.log(math.pi) - math.lgamma((P - 1) / 2)
    series = []
    for kappa in (0.0, 40.0, 120.0, 400.0, 1200.0):
        constant = log_normalizer(torch.tensor(kappa, dtype=torch.float64), P) + ring
        values = (constant + kappa * cosines + (P - 3) / 2 * torch.log1p(-cosines.square())).exp()
        series.append(Series(f"κ = {kappa:.0f}", _points(cosines, values)))
    title = "Cosine of a view to the mean direction"
    return _lines("density", title, series, "cosine", "density", [-0.45, 1])


def matrix() -> Chart:
    """Similarities of real images: four views of each against the other four."""
    split = load("embedded", "train")
    samples = EpochSampler(len(split), 1, SEED, rank=0, world_size=1).order(0)[:IMAGES]
    values = similarities(average_colours(split, samples)).tolist()
    # Two images of one class may be among them.
    names = [
        f"{number + 1}: {split.classes[label]}"
        for number, label in enumerate(split.labels()[samples].tolist())
    ]
    rows = [
        {"query": names[i], "key": names[j], "value": round(value, 3), "text": f"{value:.1f}"}
        for i, row in enumerate(values)
        for j, value in enumerate(row)
    ]
    axis = {"ticks": False, "domain": False, "grid": False}
    x = {"field": "key", "type": "nominal", "scale": {"domain": names}, "title": "last four views"}
    y = {
        "field": "query",
        "type": "nominal",
        "scale": {"domain": names},
        "title": "first four views",
    }
    place = {"x": {**x, "axis": {**axis, "labelAngle": -40}}, "y": {**y, "axis": axis}}
    shade = {
        "field": "value",
        "type": "quantitative",
        "scale": {"domain": [min(map(min, values)), 0], "range": [0.02, 0.8]},
        "legend": None,
    }
    layers = [
        {
            "mark": {"type": "rect", "color": "var(--accent)"},
            "encoding": {**place, "opacity": shade},
        },
        {
            "mark": {"type": "text", "fontSize": 12, "color": "var(--ink)"},
            "encoding": {**place, "text": {"field": "text"}},
        },
    ]
    text = "Rows and columns are the six images; the diagonal, each with itself, is the largest."
    spec = {"data": {"values": rows}, "width": 380, "height": 300, "layer": layers}
    return Chart("matrix", "Minus the divergence between six images", text, spec)


def similarity() -> Chart:
    """Minus the exact divergence by angle, for keys of several concentrations."""
    cosines = torch.linspace(-1, 1, 201, dtype=torch.float64)
    query = _kappa(0.8)
    series = []
    for resultant in (0.5, 0.8, 0.95):
        values = -kl_divergence(query, _kappa(resultant), cosines, P) / P
        series.append(Series(f"R of the key {resultant:g}", _points(cosines, values)))
    title = "Similarity of a query with R = 0.8, by the key"
    label = "cosine of the mean directions"
    return _lines("similarity", title, series, label, "\N{MINUS SIGN}KL / p", [-1, 1])


def training() -> Chart:
    """What a run learns: concentration and margin, by epoch."""
    lines = (RUN / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    epochs = [row for row in map(json.loads, lines) if row["kind"] == "epoch"]
    series = [
        Series("mean κ / p", [(row["epoch"], row["kappa_mean"] / P) for row in epochs]),
        Series("margin", [(row["epoch"], row["margin"]) for row in epochs]),
    ]
    text = "60 epochs of DSF on CIFAR-10; margin: the positive's similarity less the negatives'."
    return line_chart("training", "Views come to agree", text, series, "epoch", "")


def severity() -> Chart:
    """The mean concentration of test images by the severity of a corruption."""
    results = json.loads((RUN / "results.json").read_text(encoding="utf-8"))
    found = results["geometry"]["details"]["severity"]
    series = [
        Series(name.replace("_", " "), list(enumerate(kind["kappa"])))
        for name, kind in found.items()
    ]
    text = "Severity 0 is the image as it is; kappa falls as the image gets worse."
    return line_chart(
        "severity", "κ by the severity of a corruption", text, series, "severity", "κ"
    )


def similarities(features: Tensor) -> Tensor:
    """Of the first four views of each image to the last four of each."""
    similarity = DSFSimilarity(mode="exact")
    return similarity(similarity.fit(features[:, :4]), similarity.fit(features[:, 4:]))


def average_colours(split: Split, samples: Tensor) -> Tensor:
    """(images, views, 48) features by the simplest of encoders: mean colours of 16 tiles.

    The views are crops and flips: colour jitter would leave such features nothing to know an image
    by. The mean of all is taken away, as BatchNorm does at the end of a head.
    """
    views = Views(Recipe(crop_scale=(0.2, 1.0)), size=32, seed=SEED)
    made = views(split.gather(samples), samples, 0, torch.arange(VIEWS))
    features: Tensor = nn.AvgPool2d(8)(made.flatten(0, 1)).flatten(1)
    features = features.unflatten(0, (len(samples), VIEWS)).double()
    return features - features.mean(dim=(0, 1))


def write(folder: Path) -> list[Path]:
    """Write the charts and the sheet of views; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    sheet = view_sheet(load("embedded", "train"), IMAGES, VIEWS, RECIPES["cifar"], seed=SEED)
    content = {f"{chart.name}.svg": svg(chart).encode() for chart in charts()}
    content["views.webp"] = encoded(sheet, "WEBP")
    for name, data in content.items():
        write_file(folder / name, data)
    return [folder / name for name in content]


def _lines(
    name: str, title: str, series: list[Series], x_label: str, y_label: str, domain: list[float]
) -> Chart:
    """A chart of lines whose x axis need not begin at 0."""
    drawn = line_chart(name, title, title, series, x_label, y_label, whole=False)
    text = json.dumps(drawn.spec).replace('"domainMin": 0', f'"domain": {json.dumps(domain)}')
    return Chart(name, title, drawn.description, json.loads(text))


def _kappa(resultant: float) -> Tensor:
    """Of a resultant that is then shrunken, as in training."""
    r = 0.95 * torch.tensor(resultant, dtype=torch.float64)
    return r * (P - r**2) / (1 - r**2)


def _points(x: Tensor, y: Tensor) -> list[tuple[float, float]]:
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _rounded(vectors: Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in vector] for vector in vectors.tolist()]


if __name__ == "__main__":
    for path in write(FOLDER):
        print(path.relative_to(ROOT), f"{path.stat().st_size:,} bytes")
