import json
import math
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from pages import layers, read, tips
from PIL import Image

from dsf.experiments.page.bars import bar_chart
from dsf.experiments.page.chart import Series, line_chart, thinned
from dsf.experiments.page.figures import Figures
from dsf.experiments.page.matrix import matrix_chart
from dsf.experiments.page.vega import COLOURS, embedded, light_colours, page_script, png, svg


def chart(*series, **options):
    return line_chart("c", "Title", "Description", series, "epoch", "value", **options)


def strict(spec):
    """As JSON, which knows no NaN."""
    return json.dumps(spec, allow_nan=False)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0, 3.0],
        [5.0],
        [0.0, 0.0],
        [-7.25, 1e-9, 3e4],
        [1e30, -1e30],
        [math.nan, 2.0, math.inf, 4.0],
    ],
)
def test_any_values_can_be_drawn(values):
    made = chart(Series("a", list(enumerate(values))))
    strict(made.spec)
    (marks,) = layers(made.spec, "point")
    finite = [value for value in values if math.isfinite(value)]
    assert [row["y"] for row in marks["data"]["values"]] == finite
    drawn = svg(made)
    ElementTree.fromstring(drawn)
    assert "NaN" not in drawn
    assert 'aria-roledescription="line mark"' in drawn
    assert drawn.count('aria-roledescription="point"') == len(finite)


@pytest.mark.parametrize("value", [4.5176, 0.2908, -3.2e-4, 76.83, 0.0])
def test_the_ticks_around_a_single_value_are_true(value):
    for points in ([(1, value)], [(1, value), (2, value)]):
        drawn = svg(chart(Series("a", points)))
        (axis,) = re.findall(
            r"Y-axis titled 'value' for a linear scale with values from [^\"]*", drawn
        )
        low, high = re.findall(r"[\d.eE+\u2212-]+\d", axis.split("from")[1])
        assert float(low.replace("\u2212", "-")) < value < float(high.replace("\u2212", "-"))


def test_what_is_not_finite_is_a_gap():
    points = [(0, 1.0), (1, 2.0), (2, math.nan), (3, 2.0), (4, 3.0)]
    made = chart(Series("a", points))
    (line,) = layers(made.spec, "line")
    assert [row["y"] for row in line["data"]["values"]] == [1.0, 2.0, None, 2.0, 3.0]
    assert Series("a", points).lost == 1
    (path,) = re.findall(r'aria-roledescription="line mark" d="([^"]*)"', svg(made))
    assert path.count("M") == 2


def test_values_can_be_read_where_the_pointer_is():
    one = Series("one", [(1, 31.25), (2, 41.0)])
    other = Series("other", [(2, 0.5), (4, math.nan), (5, 0.25)])
    made = chart(one, other)
    assert tips(made.spec) == [
        {"epoch": "1", "one": "31.25"},
        {"epoch": "2", "one": "41.00", "other": "0.5000"},
        {"epoch": "5", "other": "0.2500"},
    ]
    (hover,) = layers(made.spec, "rect")
    ends = [(row["x"], row["end"]) for row in hover["data"]["values"]]
    assert ends == [(1, 1.5), (1.5, 3.5), (3.5, 5)]  # no gap between the strips
    (alone,) = layers(chart(Series("a", [(1, 2.0)])).spec, "rect")[0]["data"]["values"]
    assert alone["x"] < 1 < alone["end"]


def test_series_differ_by_more_than_colour():
    lines = [Series(f"run {n}", [(0, 1.0), (1, n + 2.0)]) for n in range(20)]
    spec = chart(*lines).spec
    colour, shape = (
        layers(spec, "point")[0]["encoding"][channel]["scale"] for channel in ("color", "shape")
    )
    assert colour["domain"] == shape["domain"] == [line.name for line in lines]
    dashes = [tuple(layer["mark"]["strokeDash"]) for layer in layers(spec, "line")]
    looks = set(zip(colour["range"], shape["range"], dashes))
    assert len(looks) == 20
    assert len(set(zip(colour["range"], dashes))) == 20  # where there are no marks
    long = [Series(line.name, [(x, x + n) for x in range(100)]) for n, line in enumerate(lines)]
    spec = chart(*long).spec
    assert not layers(spec, "point")
    scale = layers(spec, "line")[0]["encoding"]["strokeDash"]["scale"]
    assert [tuple(dash) for dash in scale["range"]] == dashes


def test_a_run_keeps_its_colour_where_another_has_no_values():
    first, second = Series("one", [(0, math.nan)]), Series("two", [(0, 1.0), (1, 2.0)])
    encoding = layers(chart(first, second).spec, "line")[0]["encoding"]
    assert encoding["color"]["scale"] == {"domain": ["two"], "range": [COLOURS[1]]}
    assert encoding["color"]["legend"] is not None
    values = {"one": {}, "two": {"snow": 1.0}}
    colour = bar_chart("b", "Title", "Description", values, "error").spec["encoding"]["color"]
    assert colour["scale"] == {"domain": ["two"], "range": [COLOURS[1]]}


def test_a_single_point_among_long_lines_is_seen():
    long = Series("long", [(x, 1.0) for x in range(100)])
    (marks,) = layers(chart(long, Series("short", [(1, 2.0)])).spec, "point")
    assert marks["data"]["values"] == [{"x": 1, "y": 2.0, "series": "short"}]


def test_one_series_needs_no_legend():
    spec = chart(Series("a", [(0, 1.0), (1, 2.0)])).spec
    assert layers(spec, "line")[0]["encoding"]["color"]["legend"] is None
    steps = Series("steps", [(0.5, 1.0), (1, 3.0)], faint=True)
    spec = chart(Series("a", [(0, 1.0), (1, 2.0)]), steps).spec
    scale = layers(spec, "line")[0]["encoding"]["color"]["scale"]
    assert scale == {"domain": ["a", "steps"], "range": [COLOURS[0], "var(--faint)"]}
    assert tips(spec) == [{"epoch": "0", "a": "1.000"}, {"epoch": "1", "a": "2.000"}]


def test_ticks_are_whole_epochs():
    def axis(last, **options):
        spec = chart(Series("a", [(0, 1.0), (last, 2.0)]), **options).spec
        return layers(spec, "line")[0]["encoding"]["x"]["axis"]

    assert axis(3)["values"] == [0, 1, 2, 3]
    assert axis(60) == {"format": ",d"}
    assert axis(0.5, whole=False) == {}


def test_without_values_there_is_no_chart():
    with pytest.raises(ValueError, match="'Title' has no finite value"):
        chart(Series("a", [(0, math.nan)]))
    with pytest.raises(ValueError, match="'Title' has no finite value"):
        bar_chart("b", "Title", "Description", {"a": {"snow": math.nan}}, "error")


def test_long_lines_are_thinned_but_keep_their_end():
    points = [(float(x), float(x)) for x in range(10_001)]
    few = thinned(points, 600)
    assert len(few) <= 600
    assert few[0] == points[0]
    assert few[-1] == points[-1]
    assert thinned(points[:600], 600) == points[:600]
    spec = chart(Series("a", points)).spec
    (line,) = layers(spec, "line")
    assert len(line["data"]["values"]) == len(few)
    assert not layers(spec, "point")


def test_a_chart_in_a_page_cannot_end_its_script():
    made = chart(Series("</script><b>", [(0, 1.0), (1, 2.0)]), Series("b", [(0, 1.0)]))
    html = embedded(made)
    assert html.count("</script") == 1
    tree = read(html)
    assert not tree.find("b")
    spec = json.loads(tree.find("script")[0].text)
    assert spec["description"] == "Title. Description"
    assert layers(spec, "point")[0]["data"]["values"][0]["series"] == "</script><b>"


def test_files_hold_no_variables_and_nothing_to_point_at():
    drawn = svg(chart(Series("a", [(0, 1.0), (1, 2.0)])))
    assert "var(" not in drawn
    assert light_colours()["accent"] in drawn
    assert 'fill="#ffffff"' in drawn
    assert "hover" not in drawn


def test_figures_are_written_as_svg_and_png(tmp_path):
    figures = Figures()
    for value in (1.0, 2.0):  # two of one name
        assert "data-chart" in figures.draw(chart(Series("a", [(0, value), (1, 3.0)])))
    figures.pictures["views"] = Image.new("RGB", (12, 8), "teal")
    written = figures.write(tmp_path / "new" / "folder")
    names = {path.name for path in written}
    assert names == {"views.png", "c.svg", "c.png", "c-2.svg", "c-2.png"}
    assert (tmp_path / "new" / "folder" / "c.svg").read_text() == svg(figures.charts["c"])
    width, height = Image.open(tmp_path / "new" / "folder" / "c.png").size
    assert width > 1500  # 460 points at 300 an inch
    assert height > 1000
    assert Image.open(tmp_path / "new" / "folder" / "views.png").size == (12, 8)
    assert png(figures.charts["c"]) == (tmp_path / "new" / "folder" / "c.png").read_bytes()


def test_bars():
    values = {"one": {"snow": 20.0, "fog": math.nan}, "two": {"fog": 31.25}}
    spec = bar_chart("b", "Title", "Description", values, "error", " %").spec
    strict(spec)
    rows = [(row["run"], row["group"], row["value"]) for row in spec["data"]["values"]]
    assert rows == [("one", "snow", 20.0), ("two", "fog", 31.25)]
    assert spec["data"]["values"][1]["tip"] == {"run": "two", "fog": "31.25 %"}
    assert spec["encoding"]["y"]["sort"] == ["snow", "fog"]


def test_matrix():
    made = matrix_chart("m", "Title", [[8, 2], [0, 5]], ["cat", "dog"])
    cells = {(row["true"], row["named"]): row["share"] for row in made.spec["data"]["values"]}
    assert cells == {("cat", "cat"): 0.8, ("cat", "dog"): 0.2, ("dog", "dog"): 1.0}
    assert made.description == "13 of 15 images lie on the diagonal."
    tip = made.spec["data"]["values"][1]["tip"]
    assert tip == {"true": "cat", "named": "dog", "images": "2 of 10"}
    assert len(made.spec["layer"]) == 2
    many = [[int(a == b) for a in range(60)] for b in range(60)]
    made = matrix_chart("m", "Title", many, [str(n) for n in range(60)])
    assert len(made.spec["layer"]) == 1  # no room for counts
    assert made.spec["layer"][0]["encoding"]["x"]["axis"]["labels"] is False
    assert len(svg(made)) < 100_000


def test_the_script_is_whole_and_named_by_its_hash():
    script, source = page_script()
    tree = read(script)
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", source)
    assert "window.vegaEmbed" in tree.find("script")[0].text
    assert 0.5e6 < len(script) < 1.5e6


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ValueError, match="pip install vl-convert-python"):
        svg(chart(Series("a", [(0, 1.0)])))


def test_importing_dsf_does_not_wait_for_it():
    code = "import sys, dsf, dsf.cli, dsf.losses, dsf.experiments.page; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "vl_convert" not in run.stdout.split()
    assert "dsf.experiments.page" in run.stdout.split()
