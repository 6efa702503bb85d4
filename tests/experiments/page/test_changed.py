import json

from pages import notes, read, section, write_run

from dsf.experiments.page import make_page, read_run
from dsf.experiments.page.changed import image_notes

OTHER = "Measured on other images than the run learned from, since they have changed: "


def of(**splits):
    """A result of images with these hashes."""
    content = {split: {"images": digest, "labels": "1"} for split, digest in splits.items()}
    return {"protocol": {"data": {"content": content}}, "accuracy": 0.5, "backbone": 0.5}


def test_nothing_is_said_of_the_same_images():
    results = {
        "training": {"images": 7},
        "knn": of(train="a", test="b"),
        "knn leave_one_out=True": of(train="a"),  # of a data set that had no test images yet
        "linear": of(train="a", test="b"),
        "linear@pets": of(train="p", test="q"),  # named after its data
        "finetune@folder:my photos budget=0.05": of(train="r", test="s"),
    }
    assert image_notes(results, "a") == []
    assert image_notes(results, None) == []
    assert image_notes(results, "z", split="unlabelled") == []  # which no result is of


def test_other_training_images_than_the_run_learned_from():
    results = {
        "knn": of(train="a", test="b"),
        "untrained-knn": of(train="c", test="d"),
        "linear": of(train="c", test="d"),
    }
    assert image_notes(results, "a") == [f"{OTHER}untrained-knn; linear."]
    assert image_notes(results, "c") == [f"{OTHER}knn."]
    assert image_notes(results, "x", named=str.upper) == [f"{OTHER}KNN; UNTRAINED-KNN; LINEAR."]


def test_images_that_changed_between_evaluations():
    """The run may not say what it learned from, or it is others that changed."""
    results = {"knn": of(train="a", test="b"), "linear": of(train="a", test="d")}
    results["corruption"] = of(train="a", test="b")
    text = (
        "The images of the split test changed between evaluations, so that these groups are of "
        "different ones: (1) knn; corruption; (2) linear."
    )
    assert image_notes(results, "a") == image_notes(results, None) == [text]
    results["linear"] = of(train="c", test="d")
    assert image_notes(results, "a") == [f"{OTHER}linear."]
    assert [line.split()[5] for line in image_notes(results, None)] == ["train", "test"]


def test_what_is_no_hash_is_passed_over():
    broken = {"knn": 3, "linear": {"protocol": {"data": {"content": {"train": [], "test": 4}}}}}
    assert image_notes({**broken, "finetune": of(train="a")}, "a") == []


def test_a_page_names_them_below_the_tables(tmp_path):
    results = {
        "knn": of(train="a"),
        "untrained-knn": of(train="c"),
        "linear": of(train="c"),
        "geometry": of(train="c") | {"backbone_alignment": 0.4},
    }
    for name in ("one", "two"):
        write_run(tmp_path / name)
        (tmp_path / name / "results.json").write_text(json.dumps(results))
        environment = {"images_sha256": "a" if name == "one" else "c"}
        (tmp_path / name / "environment.json").write_text(json.dumps(environment))
    runs = {name: read_run(tmp_path / name) for name in ("one", "two")}
    alone = read(make_page("title", "lead", {"one": runs["one"]}).html)
    assert notes(section(alone, "accuracy")) == [
        f"{OTHER}kNN before training; linear classifier; geometry."
    ]
    assert notes(section(alone, "geometry")) == [f"{OTHER}geometry."]
    both = read(make_page("title", "lead", runs).html)
    assert notes(section(both, "accuracy")) == [
        f"one: {OTHER}kNN before training; linear classifier; geometry.",
        f"two: {OTHER}kNN.",
    ]
    assert notes(section(both, "geometry")) == [f"one: {OTHER}geometry."]


def test_they_are_named_without_a_table_too(tmp_path):
    write_run(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps({"geometry": of(train="c")}))
    (tmp_path / "environment.json").write_text(json.dumps({"images_sha256": "a"}))
    tree = read(make_page("title", "lead", {"run": read_run(tmp_path)}).html)
    assert notes(section(tree, "accuracy"))[1:] == [f"{OTHER}geometry."]
