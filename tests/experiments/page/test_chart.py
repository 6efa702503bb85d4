import math

import pytest
from pages import coordinates, read

from dsf.experiments.page.axis import fitted_axis, nice_axis, tick_labels
from dsf.experiments.page.chart import HEIGHT, WIDTH, Series, line_chart, thinned


def chart(*series):
    return line_chart("c", "Title", "Description", series, "epoch", "value")


def inside(svg):
    found = list(coordinates(svg))
    assert found
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in found)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0, 3.0],
        [5.0],
        [0.0, 0.0],
        [-7.25, 1e-9, 3e4],
        [1e30, -1e30],
        [1e9, 1e9 + 1e-3],
        [math.nan, 2.0, math.inf, 4.0],
    ],
)
def test_all_of_it_lies_in_the_box(values):
    svg = read(chart(Series("a", list(enumerate(values)))))
    inside(svg)
    assert "nan" not in str(list(coordinates(svg)))
    marks = svg.find("g", class_="s0")[0].find("circle", class_="reach")
    assert len(marks) == sum(map(math.isfinite, values))


def test_points_are_where_their_values_are():
    svg = read(chart(Series("a", [(0, 10.0), (5, 20.0), (10, 15.0)])))
    places = [
        (float(c.attributes["cx"]), float(c.attributes["cy"]))
        for c in svg.find("circle", class_="reach")
    ]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(2 * (y0 - y2), abs=0.2)
    ticks = {text.text: text.attributes for text in svg.find("text")}
    assert float(ticks["10.0"]["y"]) == pytest.approx(y0)
    assert float(ticks["20.0"]["y"]) == pytest.approx(y1)


def test_what_is_not_finite_is_a_gap():
    points = [(0, 1.0), (1, 2.0), (2, math.nan), (3, 2.0), (4, 3.0)]
    path = read(chart(Series("a", points))).find("path", class_="line")[0].attributes["d"]
    assert path.count("M") == 2
    assert path.count("L") == 2
    assert Series("a", points).lost == 1


def test_values_can_be_read():
    svg = read(chart(Series("backbone", [(1, 31.25), (2, 41.0)])))
    titles = [title.text for title in svg.find("title")]
    assert titles == ["Title", "backbone, epoch 1: 31.25", "backbone, epoch 2: 41.00"]


def test_series_differ_by_more_than_colour():
    two = [Series(name, [(0, 1.0), (1, 2.0)]) for name in ("one", "two")]
    svg = read(chart(*two))
    shapes = {}
    for style in ("s0", "s1"):
        group = svg.find("g", class_=style)[0]
        shapes[style] = group.find("g")[0].find("path")[0].attributes["d"].count("L")
    assert shapes["s0"] != shapes["s1"]
    legend = svg.find("g", class_="legend")[0]
    assert [text.text for text in legend.find("text")] == ["one", "two"]
    inside(svg)


def test_a_screen_reader_finds_title_and_description():
    svg = read(chart(Series("a", [(0, 1.0)]))).find("svg")[0]
    assert svg.attributes["role"] == "img"
    labels = svg.attributes["aria-labelledby"].split()
    named = [svg.find("title")[0], svg.find("desc")[0]]
    assert [element.attributes["id"] for element in named] == labels
    assert [element.text for element in named] == ["Title", "Description"]


def test_without_values_there_is_no_chart():
    with pytest.raises(ValueError, match="'Title' has no finite value"):
        chart(Series("a", [(0, math.nan)]))


def test_long_lines_are_thinned_but_keep_their_end():
    points = [(float(x), float(x)) for x in range(10_001)]
    few = thinned(points, 600)
    assert len(few) <= 600
    assert few[0] == points[0]
    assert few[-1] == points[-1]
    assert thinned(points[:600], 600) == points[:600]
    svg = read(chart(Series("a", points)))
    assert not svg.find("circle")
    assert svg.find("path", class_="line")[0].attributes["d"].count("L") < 600


@pytest.mark.parametrize("values", [[0.3, 4.6], [-3, 11], [0.0301, 0.0309], [7], [0]])
def test_axes_cover_their_values_in_even_steps(values):
    axis = nice_axis(values, 100, 0)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert 2 <= len(axis.ticks) <= 9
    steps = [b - a for a, b in zip(axis.ticks, axis.ticks[1:])]
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert len(set(tick_labels(axis.ticks))) == len(axis.ticks)
    assert axis(axis.low) == 100
    assert axis(axis.high) == 0


def test_wrong_axes():
    with pytest.raises(ValueError, match="at least one finite value"):
        nice_axis([math.nan], 0, 1)
    with pytest.raises(ValueError, match="high must be above low = 2; got 2"):
        fitted_axis(2, 2, 0, 1)
    assert fitted_axis(0, 3, 0, 1).ticks == (0, 1, 2, 3)  # never half an epoch
    assert fitted_axis(0, 1, 0, 1).ticks == (0, 1)
    assert fitted_axis(0, 1, 0, 1, whole=False).ticks == pytest.approx((0, 0.2, 0.4, 0.6, 0.8, 1))
