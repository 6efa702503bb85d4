"""Reports of runs on one's own images, as far as these can be evaluated."""

import miniature
import pytest
import tiny
from pages import charts, notes, read, section

from dsf.data import prepare
from dsf.experiments import Choices, evaluate, train
from dsf.experiments.report import write_report

REMEDY = "put images into {0}/train/CLASS and {0}/test/CLASS and prepare it again."


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSF_DATA", str(folder / "stores"))
        yield folder


def make_run(root, name, counts):
    """A folder of pictures, and a run that learned from them."""
    pictures = miniature.picture_folder(root / name, counts)
    prepare(f"folder:{pictures}", size=16)
    settings = tiny.settings(f"data.name=folder:{pictures}", "data.limit=null", "epochs=1")
    return train(settings, root / "runs" / name, show=False), pictures


def report(run, **options):
    page = write_report([run], device="cpu", **options).page
    return read(page.read_text(encoding="utf-8"))


def test_classes_without_a_test_split(root):
    run, pictures = make_run(root, "classes", {"cat": 20, "dog": 20})
    tree = report(run, pictures=False)
    (advice,) = notes(section(tree, "accuracy"))
    assert advice.endswith(": dsf eval RUN knn --leave-one-out measures some.")
    (advice,) = notes(section(tree, "corruption"))
    assert advice.endswith(f"does not have; {REMEDY.format(pictures)}")
    evaluate(run, ["knn"], "cpu", choices=Choices(leave_one_out=True))
    tree = report(run)
    assert notes(section(tree, "accuracy")) == notes(section(tree, "confusion")) == []
    cells = charts(tree)["confusion"]["data"]["values"]
    assert sum(cell["count"] for cell in cells) == 40
    part = section(tree, "neighbours")
    assert [th.text for th in part.find("th")[:3]] == [
        "training image",
        "before training",
        "after training",
    ]
    assert len(part.find("li", class_="near")) == 2 * 2 * 5
    for name in ("accuracy", "neighbours", "maps", "confusion"):
        own = section(tree, name).text.replace("has no labelled test images", "")
        assert "test image" not in own
        assert notes(section(tree, name)) == []
    assert len(charts(tree)["map-after-training"]["layer"][0]["data"]["values"]) == 40

    next(pictures.glob("cat/*")).unlink()
    prepare(f"folder:{pictures}", size=16)
    evaluate(run, ["knn"], "cpu", choices=Choices(leave_one_out=True), random=True)
    tree = report(run)
    assert notes(section(tree, "accuracy")) == [
        "Measured on other images than the run learned from, since they have changed: "
        "kNN before training, each training image by the others."
    ]
    for name in ("views", "neighbours", "maps"):
        (changed,) = notes(section(tree, name))
        assert changed.startswith(f"folder:{pictures} has changed since it was learned from")


@pytest.mark.parametrize("below", ["", "all"])
def test_no_classes_or_only_one(root, below):
    run, pictures = make_run(root, f"alone{below}", {below: 20})
    tree = report(run)
    for name in ("accuracy", "confusion", "corruption"):
        (advice,) = notes(section(tree, name))
        assert "that takes labels of two classes or more, which folder:" in advice
        assert advice.endswith(REMEDY.format(pictures))
    for name in ("neighbours", "maps"):
        assert notes(section(tree, name))[0].startswith("Left out: ")
    assert section(tree, "views").find("img")


def test_splits_for_tests(root):
    """All can be evaluated, and is advised."""
    counts = {f"{split}/{kind}": 10 for split in ("train", "test") for kind in ("cat", "dog")}
    run, _ = make_run(root, "splits", counts)
    tree = report(run)
    (advice,) = notes(section(tree, "accuracy"))
    assert advice.endswith(": dsf eval RUN knn linear measures some.")
    assert section(tree, "neighbours").find("th")[0].text == "test image"
