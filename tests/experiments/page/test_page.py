import dataclasses
import itertools
import json
import math
import re

import pytest
from pages import (
    CLASSES,
    ENVIRONMENT,
    RESULTS,
    coordinates,
    everything,
    make_gallery,
    metrics,
    read,
    write_run,
)

from dsf.experiments.page import read_run, run_page

LEAD = "What was <done>."


def page(folder, gallery=None):
    return run_page('A "run" & <more>', LEAD, read_run(folder), gallery)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    return page(write_run(tmp_path_factory.mktemp("run")), make_gallery())


@pytest.fixture(scope="module")
def tree(html):
    return read(html)


def section(tree, name):
    return next(s for s in tree.find("section") if s.attributes["aria-labelledby"] == name)


def test_nothing_is_fetched(html, tree):
    assert html.startswith("<!doctype html>\n")
    assert not tree.find("script")
    for element in everything(tree):
        for name in ("src", "href"):
            if name in element.attributes:
                assert element.attributes[name].startswith("data:"), element.name
        assert not [key for key in element.attributes if key.startswith("on")]
    style = tree.find("style")[0].text
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique_and_references_hold(tree):
    ids = [e.attributes["id"] for e in everything(tree) if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    used = [e.attributes.get("aria-labelledby", "").split() for e in everything(tree)]
    assert {name for names in used for name in names} <= set(ids)


def test_what_the_frame_needs(tree):
    assert tree.find("html")[0].attributes["lang"] == "en"
    assert tree.find("head")[0].find("title")[0].text == 'A "run" & <more>'
    assert [h.text for h in tree.find("h1")] == ['A "run" & <more>']
    assert tree.find("header")[0].find("p")[0].text == LEAD
    headings = [int(e.name[1]) for e in everything(tree) if re.fullmatch("h[1-6]", e.name)]
    assert headings[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(headings))  # no level is skipped


def test_text_of_others_is_escaped(html, tree):
    assert "<script" not in html
    assert "<b>cat" not in html
    settings = {dt.text for dt in section(tree, "settings").find("dd")}
    assert "<script>" in settings
    legend = [label.find("span")[0].text for label in section(tree, "maps").find("label")]
    assert legend == ["all", *CLASSES]


def test_every_picture_says_what_it_is(tree):
    pictures = tree.find("img")
    assert pictures
    assert all(image.attributes["alt"] for image in pictures)
    svgs = tree.find("svg", role="img")
    assert [svg.find("title")[0].text for svg in svgs] == [
        "Loss",
        "kNN accuracy",
        "Margin",
        "Concentration",
        "Before training: features of the test images",
        "After training: features of the test images",
    ]
    assert all(svg.find("desc")[0].text for svg in svgs)
    for title in tree.find("title"):
        assert all(isinstance(child, str) for child in title.children)


def test_accuracies_are_those_of_the_results(tree):
    rows = section(tree, "accuracy").find("tbody")[0].find("tr")
    shown = {row.find("th")[0].text: [cell.text for cell in row.find("td")] for row in rows}
    expected = {}
    for name, evaluation, key in (
        ("kNN, backbone", "knn", "backbone"),
        ("kNN, projection", "knn", "projection"),
        ("linear classifier", "linear", "accuracy"),
    ):
        after, before = RESULTS[evaluation], RESULTS[f"untrained-{evaluation}"]
        protocol = ", ".join(f"{name} = {value}" for name, value in after["protocol"].items())
        expected[name + protocol] = [
            f"{100 * before[key]:.1f} %",
            f"{100 * after[key]:.1f} %",
            f"{100 * (after[key] - before[key]):+.1f}",
        ]
    assert shown == expected
    bars = [bar.attributes["style"] for bar in rows[0].find("span", class_="after")]
    assert bars == [f"width: {100 * RESULTS['knn']['backbone']:.1f}%"]
    assert "Guessing would give 33.3 %." in section(tree, "accuracy").text


def test_protocols_are_there_in_full(tree, tmp_path):
    details = section(tree, "accuracy").find("details")[0]
    assert [h.text for h in details.find("h3")] == ["knn", "linear"]
    knn, linear = ([dd.text for dd in dl.find("dd")] for dl in details.find("dl"))
    assert (knn, linear) == (["200", "0.1"], ["0"])
    named = {"linear": {"protocol": {"method": "a <method>", "seed": 7}, "accuracy": 0.5}}
    write_run(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps(named))
    part = section(read(page(tmp_path)), "accuracy")
    assert part.find("small")[0].text == "a <method>"
    assert [dd.text for dd in part.find("dd")] == ["a <method>", "7"]
    dash = "\N{EN DASH}"
    assert [cell.text for cell in part.find("td")] == [dash, "50.0 %", dash]


def test_the_first_thing_one_sees_is_the_gain(tree):
    cards = [card.text for card in tree.find("ul", class_="hero")[0].find("li")]
    assert cards == [
        "kNN accuracy on test images28.7 % → 41.3 %+12.6 points",
        "linear accuracy on test images33.4 % → 48.7 %+15.3 points",
    ]


@pytest.mark.parametrize(
    ("heading", "kind", "name"),
    [
        ("Loss", "epoch", "loss"),
        ("Margin", "epoch", "margin"),
        ("Concentration", "epoch", "kappa_mean"),
    ],
)
def test_curves_show_the_metrics(tree, heading, kind, name):
    figure = next(f for f in tree.find("figure") if f.find("h3")[0].text == heading)
    values = [line[name] for line in metrics() if line["kind"] == kind]
    titles = [t.text for t in figure.find("title")][1:]
    assert len(titles) == len(values)
    for epoch, (title, value) in enumerate(zip(titles, values), 1):
        label, shown = title.split(": ")
        assert label == f"mean of the epoch, epoch {epoch}"
        assert float(shown) == pytest.approx(value, rel=5e-4)
    first, last = map(float, figure.find("strong")[0].text.split(" → "))
    assert (first, last) == pytest.approx((values[0], values[-1]), rel=5e-3)
    assert len(figure.find("g", class_="faint")) == 2  # the steps and their entry in the legend


def test_the_knn_curve_begins_with_the_untrained_encoder(tree):
    figure = next(f for f in tree.find("figure") if f.find("h3")[0].text == "kNN accuracy")
    titles = [t.text for t in figure.find("title")][1:]
    assert titles == [
        "backbone, epoch 0: 28.71",
        "backbone, epoch 2: 32.50",
        "backbone, epoch 4: 35.00",
        "projection, epoch 0: 25.14",
        "projection, epoch 2: 30.22",
        "projection, epoch 4: 32.44",
    ]


def test_a_monitor_that_saw_the_untrained_encoder_is_not_doubled(tmp_path):
    lines = [{"kind": "knn", "epoch": 0, "step": 0, "backbone": 0.1, "projection": 0.1}]
    tree = read(page(write_run(tmp_path, lines=[*lines, *metrics()])))
    figure = next(f for f in tree.find("figure") if f.find("h3")[0].text == "kNN accuracy")
    titles = [t.text for t in figure.find("title") if ", epoch 0" in t.text]
    assert titles == ["backbone, epoch 0: 10.00", "projection, epoch 0: 10.00"]


def test_neighbours_are_marked_by_sign_and_word(tree):
    gallery = make_gallery()
    rows = section(tree, "neighbours").find("tbody")[0].find("tr")
    assert len(rows) == len(CLASSES)
    for row, query in enumerate(rows):
        truth = CLASSES[gallery.test_labels[gallery.queries[row]]]
        assert query.find("th")[0].text == truth
        for cell, look in zip(query.find("td"), (gallery.before, gallery.after)):
            names = [CLASSES[label] for label in gallery.train_labels[look.neighbours[row]]]
            signs = ["✓" if name == truth else "✕" for name in names]
            entries = cell.find("li")
            assert [e.text for e in entries] == [f"{s} {n}" for s, n in zip(signs, names)]
            for entry, name in zip(entries, names):
                verdict = "right" if name == truth else "wrong"
                assert entry.attributes["class"] == f"near {verdict}"
                alternative = entry.find("img")[0].attributes["alt"]
                assert alternative == f"training image, {name}, {verdict} class"
            assert f"{signs.count('✓')} of 5 right" in cell.find("p")[0].text
    text = section(tree, "neighbours").find("p")[0].text
    for look in (gallery.before, gallery.after):
        assert f"{100 * look.agreement:.1f} %" in text


def test_maps_show_every_image_in_its_class(tree):
    maps = section(tree, "maps").find("svg", class_="map")
    assert len(maps) == 2
    for svg in maps:
        width, height = map(float, svg.attributes["viewbox"].split()[2:])
        places = list(coordinates(svg))
        assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
        for number in range(len(CLASSES)):
            group = svg.find("g", class_=f"k{number}")[0]
            assert group.find("title")[0].text == CLASSES[number]
            marks = re.findall("M([^ aL]+) ([^ aL]+)", group.find("path")[0].attributes["d"])
            assert len(marks) == 4
            mean = svg.find("g", class_="mean")[number]
            assert mean.find("title")[0].text == f"mean of {CLASSES[number]}"
            (place,) = re.findall("M([^ aL]+) ([^ aL]+)", mean.find("path")[0].attributes["d"])
            middle = [sum(map(float, axis)) / 4 for axis in zip(*marks)]
            assert list(map(float, place)) == pytest.approx(
                middle, abs=8
            )  # outlines differ in size
    captions = [
        figure.find("figcaption")[0].text for figure in section(tree, "maps").find("figure")
    ]
    gallery = make_gallery()
    for caption, look in zip(captions, (gallery.before, gallery.after)):
        assert f"{100 * look.separation:.1f} % of the variance" in caption
        assert f"this plane shows {100 * look.plane.share:.1f} %" in caption
    style = tree.find("style")[0].text
    for number in range(len(CLASSES)):
        assert f"#map-{number}:checked" in style


def test_settings_environment_and_cost(tmp_path, tree):
    def pairs(part):
        return {
            pair.find("dt")[0].text: pair.find("dd")[0].text
            for pair in part.find("dl")[0].find("div")
        }

    assert pairs(section(tree, "settings")) == {
        "epochs": "4",
        "batch_size": "64",
        "views.count": "8",
        "views.recipe": "cifar",
        "name": "<script>",
    }
    shown = {name: value or "null" for name, value in ENVIRONMENT.items()}
    assert pairs(section(tree, "environment")) == shown
    write_run(tmp_path)
    cost = {
        "protocol": {},
        "images": 40_000,
        "views": 320_000,
        "processes": 1,
        "device_seconds": 243.2,
        "peak_memory_bytes": 3 * 2**29,
    }
    (tmp_path / "results.json").write_text(json.dumps(RESULTS | {"training": cost}))
    assert pairs(section(read(page(tmp_path)), "cost")) == {
        "images seen": "40,000",
        "views made": "320,000",
        "training time": "4 min 3 s",
        "highest memory": "1.50 GiB",
        "processes": "1",
    }


def test_the_same_input_gives_the_same_page(html, tmp_path):
    folder = write_run(tmp_path / "one")
    first, second = (page(folder, make_gallery()) for _ in range(2))
    assert first == second
    assert len(first) > 10_000


def notes(tree):
    return [note.text.removeprefix("Note. ") for note in tree.find("p", class_="note")]


def test_a_whole_run_lacks_only_its_cost(tree):
    assert notes(tree) == ["results.json holds no cost: it is written when the training ends."]


def test_without_knn_lines(tmp_path):
    lines = [line for line in metrics() if line["kind"] != "knn"]
    folder = write_run(tmp_path, leave_out=["results.json"], lines=lines)
    tree = read(page(folder))
    assert "metrics.jsonl holds no kNN that can be drawn." in notes(tree)
    assert "results.json is missing." in notes(tree)
    assert "results.json holds no kNN and no linear." in notes(tree)
    assert len(tree.find("svg", class_="chart")) == 3
    # The untrained encoder alone is no curve.
    tree = read(page(write_run(tmp_path, lines=lines)))
    assert "metrics.jsonl holds no kNN that can be drawn." in notes(tree)


def test_an_interrupted_run(tmp_path):
    tree = read(page(write_run(tmp_path, lines=list(metrics(2)))))
    assert "The run has 2 of 4 epochs: it is not finished." in notes(tree)


def test_warnings_of_the_run_are_repeated(tmp_path):
    warning = {"kind": "warning", "epoch": 2, "step": 9, "text": "all features < are equal"}
    tree = read(page(write_run(tmp_path, lines=[*metrics(), warning])))
    assert "all features < are equal" in notes(tree)


def test_an_empty_folder(tmp_path):
    tree = read(page(tmp_path))
    assert len(notes(tree)) >= 8
    assert not tree.find("svg")


def test_pictures_without_looks(tmp_path):
    gallery = dataclasses.replace(make_gallery(), before=None, after=None)
    tree = read(page(write_run(tmp_path), gallery))
    assert notes(tree).count("The features were not looked at.") == 2
    only_after = dataclasses.replace(make_gallery(), before=None)
    tree = read(page(write_run(tmp_path), only_after))
    assert len(tree.find("svg", class_="map")) == 1


def test_values_that_are_not_finite_leave_gaps(tmp_path):
    lines = list(metrics())
    for line in lines:
        if line["kind"] == "epoch" and line["epoch"] == 3:
            line |= {"loss": math.nan, "margin": math.inf, "kappa_mean": None}
    folder = write_run(tmp_path, lines=lines)
    nothing = {"knn": {"backbone": math.nan, "projection": None}, "linear": {"accuracy": "high"}}
    (folder / "results.json").write_text(json.dumps(nothing))
    html = page(folder)
    tree = read(html)
    for svg in tree.find("svg"):
        text = " ".join(str(e.attributes) for e in everything(svg))
        assert "nan" not in text.lower()
        assert "inf" not in text.lower()
    assert html.count("Left out, since not finite: 1 of the values.") == 6  # seen and for readers
