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
    charts,
    everything,
    layers,
    make_pictures,
    metrics,
    notes,
    read,
    section,
    tips,
    write_run,
)

from dsf.experiments.page import make_page, read_run

LEAD = "What was <done>."


def page(folder, pictures=None):
    return make_page('A "run" & <more>', LEAD, {"run": read_run(folder)}, pictures).html


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    return page(write_run(tmp_path_factory.mktemp("run")), make_pictures())


@pytest.fixture(scope="module")
def tree(html):
    return read(html)


def test_nothing_is_fetched(html, tree):
    assert html.startswith("<!doctype html>\n")
    for element in everything(tree):
        for name in ("src", "href"):
            if name in element.attributes:
                assert element.attributes[name].startswith("data:"), element.name
        assert not [key for key in element.attributes if key.startswith("on")]
    style = tree.find("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    for spec in charts(tree).values():
        assert '"url"' not in json.dumps(spec)
    (policy,) = (m for m in tree.find("meta") if "http-equiv" in m.attributes)
    assert policy.attributes["content"].startswith("default-src 'none'; img-src data:; ")
    assert "unsafe-inline" not in policy.attributes["content"].partition("script-src")[2]


def test_a_page_without_charts_has_no_script(tmp_path):
    tree = read(page(tmp_path))
    assert not tree.find("script")
    assert not tree.find("noscript")


def test_ids_are_unique_and_references_hold(tmp_path):
    folder = write_run(tmp_path / "run")
    linear = RESULTS["linear"] | {"details": {"confusion": [[9, 1], [1, 9]]}}
    corruption = {"mce": 0.5, "clean_error": 0.3, "details": {"by_type": {"snow": 0.5}}}
    results = RESULTS | {"linear": linear, "corruption": corruption}
    (folder / "results.json").write_text(json.dumps(results))
    tree = read(page(folder, make_pictures()))
    assert {"confusion", "corruption"} <= set(charts(tree))
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
    assert "<script>" not in html.partition("<script")[0]
    settings = {dt.text for dt in section(tree, "settings").find("dd")}
    assert "<script>" in settings
    legend = charts(tree)["map-before-training"]["layer"][0]["encoding"]["color"]["scale"]
    assert legend["domain"] == list(CLASSES)


def test_every_picture_says_what_it_is(tree):
    pictures = tree.find("img")
    assert pictures
    assert all(image.attributes["alt"] for image in pictures)
    titles = [spec["description"].partition(". ")[0] for spec in charts(tree).values()]
    assert titles == [
        "Loss",
        "kNN accuracy",
        "Margin",
        "Concentration",
        "Before training: features of the test images",
        "After training: features of the test images",
    ]
    for figure in tree.find("figure"):
        assert figure.find("h3")[0].text
        assert figure.find("figcaption")[0].text


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
    assert [h.text for h in details.find("h3")] == ["kNN", "linear classifier"]
    knn, linear = ([dd.text for dd in dl.find("dd")] for dl in details.find("dl"))
    assert (knn, linear) == (["200", "0.1"], ["0"])
    named = {"linear": {"protocol": {"method": "a <method>", "seed": 7}, "accuracy": 0.5}}
    write_run(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps(named))
    part = section(read(page(tmp_path)), "accuracy")
    assert part.find("small")[0].text == "a <method>"
    assert [dd.text for dd in part.find("dd")] == ["a <method>", "7"]
    assert [cell.text for cell in part.find("td")] == ["50.0 %"]  # nothing to compare with


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
    spec = charts(tree)[name.replace("_", "-")]
    shown = tips(spec)
    assert [tip["epoch"] for tip in shown] == [str(epoch) for epoch in range(1, len(values) + 1)]
    read_off = [float(tip["mean of the epoch"]) for tip in shown]
    assert read_off == pytest.approx(values, rel=5e-4)
    first, last = map(float, figure.find("strong")[0].text.split(" → "))
    assert (first, last) == pytest.approx((values[0], values[-1]), rel=5e-3)
    steps, means = layers(spec, "line")
    assert len(steps["data"]["values"]) == 16
    assert [row["y"] for row in means["data"]["values"]] == pytest.approx(values, rel=1e-5)


def test_the_knn_curve_begins_with_the_untrained_encoder(tree):
    assert tips(charts(tree)["knn"]) == [
        {"epoch": "0", "backbone": "28.71", "projection": "25.14"},
        {"epoch": "2", "backbone": "32.50", "projection": "30.22"},
        {"epoch": "4", "backbone": "35.00", "projection": "32.44"},
    ]


def test_a_monitor_that_saw_the_untrained_encoder_is_not_doubled(tmp_path):
    lines = [{"kind": "knn", "epoch": 0, "step": 0, "backbone": 0.1, "projection": 0.1}]
    tree = read(page(write_run(tmp_path, lines=[*lines, *metrics()])))
    first, second, *_ = tips(charts(tree)["knn"])
    assert first == {"epoch": "0", "backbone": "10.00", "projection": "10.00"}
    assert second["epoch"] == "2"


def test_kappa_has_its_range_behind_it(tmp_path):
    lines = list(metrics())
    for line in lines:
        if line["kind"] == "epoch":
            line |= {"kappa_min": line["kappa_mean"] / 2, "kappa_max": 2 * line["kappa_mean"]}
    tree = read(page(write_run(tmp_path, lines=lines)))
    (area,) = layers(charts(tree)["kappa-mean"], "area")
    for row, line in zip(area["data"]["values"], (x for x in lines if x["kind"] == "epoch")):
        assert (row["y"], row["high"]) == pytest.approx((line["kappa_min"], line["kappa_max"]))
    assert "The area spans the least and the largest" in section(tree, "curves").text


def test_throughput(tmp_path):
    lines = list(metrics())
    for count, line in enumerate(x for x in lines if x["kind"] == "step"):
        line["images_per_s"] = 100.0 + count
    tree = read(page(write_run(tmp_path, lines=lines)))
    assert tips(charts(tree)["images-per-s"])[0] == {"epoch": "0.25", "images a second": "100.0"}
    cost = section(tree, "cost").find("dl")[0]
    shown = {d.find("dt")[0].text: d.find("dd")[0].text for d in cost.find("div")}
    assert shown == {"images a second, median": "108", "views a second": "860"}


def test_neighbours_are_marked_by_sign_and_word(tree):
    (gallery,) = make_pictures().galleries
    rows = section(tree, "neighbours").find("tbody")[0].find("tr")
    assert len(rows) == len(CLASSES)
    for row, query in enumerate(rows):
        truth = CLASSES[gallery.query_labels[row]]
        assert query.find("th")[0].text == truth
        for cell, seen in zip(query.find("td"), gallery.seen):
            names = [CLASSES[label] for label in seen.labels[row]]
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
    for seen in gallery.seen:
        assert f"{100 * seen.look.agreement:.1f} % {seen.name}" in text


def test_maps_show_every_image_in_its_class(tree):
    (gallery,) = make_pictures().galleries
    captions = [f.find("figcaption")[0].text for f in section(tree, "maps").find("figure")]
    for seen, caption in zip(gallery.seen, captions, strict=True):
        spec = charts(tree)[f"map-{seen.name.replace(' ', '-')}"]
        images, means = (layer["data"]["values"] for layer in spec["layer"])
        expected = seen.look.plane.coordinates
        assert [CLASSES.index(row["class"]) for row in images] == gallery.test_labels.tolist()
        for row, (x, y) in zip(images, expected.tolist(), strict=True):
            assert (row["x"], row["y"]) == pytest.approx((x, y), abs=1e-4)
        for number, row in enumerate(means):
            x, y = expected[gallery.test_labels == number].mean(dim=0).tolist()
            assert (row["class"], row["x"], row["y"]) == (
                CLASSES[number],
                pytest.approx(x, abs=1e-4),
                pytest.approx(y, abs=1e-4),
            )
        assert f"{100 * seen.look.separation:.1f} % of the variance" in caption
        assert f"this plane shows {100 * seen.look.plane.share:.1f} %" in caption


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
        "training time": "4 min 3 s",
        "highest memory": "1.50 GiB",
        "images seen": "40,000",
        "views made": "320,000",
        "processes": "1",
    }


def test_the_same_input_gives_the_same_page(html, tmp_path):
    folder = write_run(tmp_path / "one")
    first, second = (page(folder, make_pictures()) for _ in range(2))
    assert first == second
    assert len(first) > 10_000


LACKING = [
    "metrics.jsonl holds no images_per_s that can be drawn.",
    "results.json holds no cost: it is written when the training ends.",
    "results.json holds no confusion matrix: dsf eval RUN linear makes one.",
    "results.json holds no errors on corrupted images: dsf eval RUN corruption measures them.",
]


def test_what_is_missing_is_said_in_its_place(tree):
    script_off, *others = notes(tree)
    assert script_off == "The charts are drawn by JavaScript, which is switched off."
    assert others == LACKING


def test_without_knn_lines(tmp_path):
    lines = [line for line in metrics() if line["kind"] != "knn"]
    folder = write_run(tmp_path, leave_out=["results.json"], lines=lines)
    tree = read(page(folder))
    assert "metrics.jsonl holds no kNN that can be drawn." in notes(tree)
    assert "results.json is missing." in notes(tree)
    assert any(text.startswith("results.json holds no accuracy") for text in notes(tree))
    assert set(charts(tree)) == {"loss", "margin", "kappa-mean"}
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
    missing = ("config.yaml", "metrics.jsonl", "results.json", "environment.json")
    assert notes(tree)[0] == " ".join(f"{name} is missing." for name in missing)
    assert not charts(tree)


def test_pictures_that_are_missing_say_why(tmp_path):
    reason = {"run": "Left out: there are no weights < here."}
    pictures = make_pictures(galleries=(), no_features=reason)
    tree = read(page(write_run(tmp_path), pictures))
    assert notes(tree).count(reason["run"]) == 2
    assert section(tree, "views").find("img")
    (gallery,) = make_pictures().galleries
    after = dataclasses.replace(gallery, seen=gallery.seen[1:])
    tree = read(page(write_run(tmp_path), make_pictures(galleries=(after,))))
    assert {name for name in charts(tree) if name.startswith("map")} == {"map-after-training"}


def test_a_page_needs_a_run():
    with pytest.raises(ValueError, match="runs: a page needs at least one; got none"):
        make_page("title", "lead", {})


def test_values_that_are_not_finite_leave_gaps(tmp_path):
    lines = list(metrics())
    for line in lines:
        if line["kind"] == "epoch" and line["epoch"] == 3:
            line |= {"loss": math.nan, "margin": math.inf, "kappa_mean": None}
    folder = write_run(tmp_path, lines=lines)
    nothing = {"knn": {"backbone": math.nan, "projection": None}, "linear": {"accuracy": "high"}}
    (folder / "results.json").write_text(json.dumps(nothing))
    tree = read(page(folder))
    for name, spec in charts(tree).items():
        assert "NaN" not in json.dumps(spec)
        assert "Infinity" not in json.dumps(spec)
        if name == "knn":
            continue
        rows = layers(spec, "line")[-1]["data"]["values"]
        assert [row["y"] is None for row in rows] == [False, False, True, False]
    left_out = "Left out, since not finite: 1 of the values."
    captions = [f.find("figcaption")[0].text for f in tree.find("figure")]
    assert sum(left_out in caption for caption in captions) == 3
    assert sum(left_out in spec["description"] for spec in charts(tree).values()) == 3
