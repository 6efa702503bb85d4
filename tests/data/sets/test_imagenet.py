import shutil

import made_up
import pytest

from dsf.cli import main
from dsf.data import open_store, prepare
from dsf.data.sets.imagenet import imagenet100_classes
from dsf.data.sets.imagenette import CLASSES
from dsf.data.sets.numbers import folders_of_classes
from dsf.data.sets.wordnet import imagenet_classes, readable

SIDE = 2


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return made_up.imagenet(tmp_path_factory.mktemp("sets"))


def colours(split):
    return [tuple(colour) for colour in split.images()[:, :, 0, 0].tolist()]


@pytest.mark.usefixtures("any_count")
def test_all_classes(expected):
    command = ["data", "prepare", "imagenet", "--source", str(expected.folder)]
    assert main([*command, "--size", str(SIDE)]) == 0
    store = open_store("imagenet")
    for split, pairs in expected.splits.items():
        assert store.split(split).labels().tolist() == list(range(1000))
        assert colours(store.split(split)) == [colour for _, colour in pairs]
    assert store.classes[:2] == tuple(expected.classes[:2])
    assert store.classes[-2:] == tuple(expected.classes[-2:])


@pytest.mark.usefixtures("any_count")
def test_a_hundred_of_them(expected):
    command = ["data", "prepare", "imagenet100", "--source", str(expected.folder.parent)]
    assert main([*command, "--size", str(SIDE)]) == 0
    store = open_store("imagenet100")
    classes, everything = imagenet100_classes(), imagenet_classes()
    for split, pairs in expected.splits.items():
        assert store.split(split).labels().tolist() == list(range(100))
        wanted = [pairs[everything.index(number)][1] for number in classes]
        assert colours(store.split(split)) == wanted
    assert store.classes[0] == "robin"
    assert list(store.classes) == readable(classes)


@pytest.mark.usefixtures("any_count")
def test_a_folder_of_the_hundred_alone(expected, tmp_path):
    for name in ("train", "val"):
        for number in imagenet100_classes():
            shutil.copytree(expected.folder / name / number, tmp_path / name / number)
    assert prepare("imagenet100", str(tmp_path), size=SIDE).counts == {"train": 100, "test": 100}
    shutil.rmtree(tmp_path / "val/n01558993")
    with pytest.raises(ValueError, match="val lacks 1 of 100 classes, the first is n01558993"):
        prepare("imagenet100", str(tmp_path), size=SIDE + 1)
    (tmp_path / "train/n99999999").mkdir()
    with pytest.raises(ValueError, match="train has a folder 'n99999999', which is none of its cl"):
        prepare("imagenet100", str(tmp_path), size=SIDE + 1)
    with pytest.raises(ValueError, match="train lacks 900 of 1000 classes, the first is n01440764"):
        prepare("imagenet", str(tmp_path), size=SIDE)


@pytest.mark.usefixtures("any_count")
def test_validation_images_that_are_not_sorted(expected, tmp_path):
    shutil.copytree(expected.folder / "train", tmp_path / "train")
    (tmp_path / "val").mkdir()
    (tmp_path / "val/ILSVRC2012_val_00000001.JPEG").write_bytes(b"x")
    with pytest.raises(
        ValueError, match="val lacks 1000 of 1000 classes.*; must have a folder for"
    ):
        prepare("imagenet", str(tmp_path), size=SIDE)


def test_the_classes():
    hundred, everything = imagenet100_classes(), imagenet_classes()
    assert len(set(hundred)) == 100
    assert len(set(everything)) == 1000
    assert set(hundred) < set(everything)
    assert everything == sorted(everything)


def test_words_that_two_classes_share():
    assert readable(["n02012849", "n01440764", "n03126707"]) == [
        "crane (n02012849)",
        "tench",
        "crane (n03126707)",
    ]
    assert len(set(readable(imagenet_classes()))) == 1000


@pytest.mark.parametrize(
    "numbers",
    [imagenet_classes(), imagenet100_classes(), list(CLASSES), ["n01443537", "n02124075"]],
    ids=len,
)
def test_folders_of_classes(numbers):
    words = readable(numbers)
    there = numbers if len(numbers) < 10 else imagenet_classes()
    assert folders_of_classes(words, there) == numbers
    assert folders_of_classes(numbers, there) == numbers
    assert folders_of_classes(words, words) == words
    assert folders_of_classes(["cat", "dog"], there) == ["cat", "dog"]


@pytest.mark.usefixtures("root")
def test_training_images_that_are_not_all(expected):
    """Each class has its folder before all of an archive is unpacked."""
    with pytest.raises(ValueError, match="not hold all of imagenet100: 100 train .* be 126,689"):
        prepare("imagenet100", str(expected.folder), size=SIDE)
