import dataclasses
import json

import pytest
from pages import charts, make_pictures, notes, read, section, write_run

from dsf.experiments.page import Lack, make_page, read_run

TESTS = "that takes labelled test images, which folder:photos does not have"
LABELS = "that takes labels of two classes or more, which folder:photos does not have"
REMEDY = "put images into photos/test/CLASS"


def page(folder, lack, pictures=None, **results):
    """A run with these results alone, and with no kNN on the way."""
    write_run(folder, lines=[])
    (folder / "results.json").write_text(json.dumps(results))
    lacks = None if lack is None else {"run": lack}
    return read(make_page("title", "lead", {"run": read_run(folder)}, pictures, lacks).html)


@pytest.mark.parametrize(
    ("lack", "accuracy", "confusion", "corruption"),
    [
        (
            Lack("folder:photos", False, REMEDY),
            "dsf eval RUN knn --leave-one-out measures some.",
            "dsf eval RUN knn --leave-one-out makes one.",
            f"{TESTS}; {REMEDY}.",
        ),
        (
            Lack("folder:photos", True, REMEDY),
            f"{LABELS}; {REMEDY}.",
            f"{LABELS}; {REMEDY}.",
            f"{LABELS}; {REMEDY}.",
        ),
        (Lack("folder:photos", True), f"{LABELS}.", f"{LABELS}.", f"{LABELS}."),
    ],
)
def test_only_what_can_be_run_is_advised(tmp_path, lack, accuracy, confusion, corruption):
    tree = page(tmp_path, lack)
    assert notes(section(tree, "accuracy")) == [f"results.json holds no accuracy: {accuracy}"]
    missing = f"results.json holds no confusion matrix: {confusion}"
    assert notes(section(tree, "confusion")) == [missing]
    missing = f"results.json holds no errors on corrupted images: {corruption}"
    assert notes(section(tree, "corruption")) == [missing]
    why = LABELS if lack.labels else TESTS
    assert f"metrics.jsonl holds no kNN that can be drawn: {why}." in notes(tree)


def test_runs_of_which_one_could_be_evaluated(tmp_path):
    runs = {}
    for name in ("one", "two"):
        write_run(tmp_path / name, leave_out=["results.json"], lines=[])
        runs[name] = read_run(tmp_path / name)
    tree = read(make_page("title", "lead", runs, lacks={"two": Lack("folder:photos")}).html)
    assert notes(section(tree, "accuracy")) == [
        "one: results.json holds no accuracy: dsf eval RUN knn linear measures some.",
        "two: results.json holds no accuracy: dsf eval RUN knn --leave-one-out measures some.",
    ]
    assert [text.split(": ")[0::2] for text in notes(section(tree, "corruption"))] == [
        ["one", "dsf eval RUN corruption measures them."],
        ["two", f"{TESTS}."],
    ]
    assert "metrics.jsonl holds no kNN that can be drawn." in notes(tree)
    errors = {"corruption": {"mce": 0.3, "details": {"by_type": {"fog": 0.3}}}}
    (tmp_path / "one" / "results.json").write_text(json.dumps(errors))
    runs["one"] = read_run(tmp_path / "one")
    tree = read(make_page("title", "lead", runs, lacks={"two": Lack("folder:photos")}).html)
    assert notes(section(tree, "corruption")) == [f"two: not measured: {TESTS}."]
    lacks = dict.fromkeys(runs, Lack("folder:photos"))
    tree = read(make_page("title", "lead", runs, lacks=lacks).html)
    assert f"metrics.jsonl holds no kNN that can be drawn: {TESTS}." in notes(tree)


LEFT_OUT = {
    "protocol": {"method": "votes", "leave_one_out": True},
    "backbone": 0.9,
    "projection": 0.8,
    "details": {"backbone": {"confusion": [[9, 1], [1, 9]]}},
}


def test_accuracies_of_training_images(tmp_path):
    tree = page(tmp_path, Lack("folder:photos"), **{"knn leave_one_out=True": LEFT_OUT})
    part = section(tree, "accuracy")
    assert part.find("caption")[0].text == "Accuracy on the training images"
    assert part.find("p")[0].text.startswith("The share of training images whose class")
    assert "test image" not in part.text
    assert "kNN, backbone, each training image by the others" in part.find("th")[2].text
    part = section(tree, "confusion")
    assert part.find("h3")[0].text == "kNN, backbone, each training image by the others"
    assert "test image" not in part.text
    assert [cell["count"] for cell in charts(tree)["confusion"]["data"]["values"]] == [9, 1, 1, 9]


def test_accuracies_of_both_kinds_of_images(tmp_path):
    linear = {"protocol": {"method": "line"}, "accuracy": 0.5}
    linear["details"] = {"confusion": [[5, 5], [5, 5]]}
    results = {"knn leave_one_out=True": LEFT_OUT, "linear": linear}
    tree = page(tmp_path, Lack("folder:photos"), **results)
    part = section(tree, "accuracy")
    caption = "Accuracy on the test images, or on training images"
    assert part.find("caption")[0].text == caption
    assert "Where a row says each training image by the others" in part.find("p")[0].text
    # Test images tell more.
    assert section(tree, "confusion").find("h3")[0].text == "linear classifier"
    assert "columns what test images were named" in section(tree, "confusion").text


def test_pictures_of_training_images(tmp_path):
    (gallery,) = make_pictures().galleries
    pictures = make_pictures(galleries=(dataclasses.replace(gallery, tests=False),))
    tree = page(tmp_path, Lack("folder:photos"), pictures)
    part = section(tree, "neighbours")
    text = part.find("p")[0].text
    assert text.startswith("The first training image of each class, and the other training images")
    assert "nearest neighbours of all training images" in text
    assert text.endswith(
        "noise has no labelled test images: these were learned from, though without their labels."
    )
    assert part.find("th")[0].text == "training image"
    pictured = [image.attributes["alt"] for image in part.find("th")[3].find("img")]
    assert pictured == ["training image, plane"]
    assert section(tree, "maps").find("p")[0].text.startswith("A small mark is a training image, ")
    title = charts(tree)["map-after-training"]["description"]
    assert title.startswith("After training: features of the training images. ")
    both = make_pictures(galleries=(gallery, *pictures.galleries))
    text = section(page(tmp_path, Lack("folder:photos"), both), "maps").find("p")[0].text
    assert text.startswith("A small mark is a test image or a training image, ")


def test_pictures_of_images_that_changed(tmp_path):
    text = "noise has changed since it was learned from: these are its images as they are now."
    pictures = make_pictures(changed={"run": text})
    tree = page(tmp_path, Lack("folder:photos"), pictures)
    for name in ("views", "neighbours", "maps"):
        assert notes(section(tree, name)) == [text]
    pictures = make_pictures(changed={"run": text}, galleries=(), no_features={"run": "Left out."})
    tree = page(tmp_path, Lack("folder:photos"), pictures)
    assert notes(section(tree, "maps")) == ["Left out."]


def corrupted(mce):
    return {"mce": mce, "clean_error": 0.1, "details": {"by_type": {"fog": mce}}}


def test_the_usual_evaluation_of_corruption_is_shown(tmp_path):
    fewer = "corruption severities=5"
    tree = page(tmp_path / "one", None, **{fewer: corrupted(0.7), "corruption": corrupted(0.3)})
    text = section(tree, "corruption").text
    assert "Mean error 30.0 %" in text
    assert "70.0 %" not in text
    tree = page(tmp_path / "two", None, **{fewer: corrupted(0.7)})
    text = section(tree, "corruption").text
    assert "Mean error 70.0 %" in text
    assert "Shown is the error on corrupted images, severities=5." in text


def test_unlike_evaluations_of_corruption_are_not_compared(tmp_path):
    results = {"one": {"corruption severities=5": corrupted(0.7)}}
    results["two"] = {"corruption severities=5": corrupted(0.8), "corruption": corrupted(0.3)}
    for name, content in results.items():
        (write_run(tmp_path / name) / "results.json").write_text(json.dumps(content))
    runs = {name: read_run(tmp_path / name) for name in results}
    part = section(read(make_page("title", "lead", runs).html), "corruption")
    assert "Two: mean error 30.0 %" in part.text
    assert "70.0 %" not in part.text
    assert notes(part) == ["one: not measured: dsf eval RUN corruption measures them."]
