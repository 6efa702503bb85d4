import miniature
import numpy as np
import pytest

from dsf.data import ArraySource, Store, prepare, writer
from dsf.data.progress import Progress
from dsf.data.summary import Unlearned, class_line, unlearned


def make(path, classes, **labels):
    arrays = {
        split: (np.zeros((len(values), 4, 4, 3), np.uint8), np.array(values))
        for split, values in labels.items()
    }
    writer.build(path, "mini", ArraySource("a test", classes, arrays), Progress())
    return Store(path)


def test_classes_without_images_are_not_counted(tmp_path):
    store = make(tmp_path / "store", ("a", "b", "c"), train=[2, 0, 0], test=[1])
    assert class_line(store, "train") == "2 classes: a (2), c (1)"
    assert class_line(store, "test") == "1 class: b (1)"
    assert unlearned(store) == [Unlearned("test", "b", 1)]


def test_two_classes_of_one_name_are_two(tmp_path):
    store = make(tmp_path / "store", ("crane", "crane"), train=[0, 0, 1], test=[1])
    assert class_line(store, "train") == "2 classes: crane (2), crane (1)"
    assert unlearned(store) == []


def test_of_many_classes_only_the_first(tmp_path):
    store = make(tmp_path / "store", [str(n) for n in range(1500)], train=list(range(1500)))
    assert class_line(store, "train") == "1,500 classes of 1 each: 0, 1, 2, ..."


@pytest.mark.usefixtures("root")
def test_without_labels(tmp_path):
    store = prepare(f"folder:{miniature.picture_folder(tmp_path / 'flat', {'': 2})}", size=8)
    assert class_line(store, "train") == "no labels"
    assert unlearned(store) == []


def test_without_training_images(tmp_path):
    assert unlearned(make(tmp_path / "store", ("a",), test=[0])) == []
