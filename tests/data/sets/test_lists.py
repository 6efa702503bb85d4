"""Lists and folders that contradict themselves are named, with what is wrong."""

import json
import shutil
import sys

import made_up
import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from dsf.data import prepare

SIDE = 6


def refuse(name, folder, message):
    with pytest.raises(ValueError, match=message):
        prepare(name, str(folder), size=SIDE)


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Abyssinian_9 1 1", "trainval.txt, line 1: must have 4 columns; got 'Abyssinian_9 1 1'"),
        ("Abyssinian_9 x 1 1", "the class of Abyssinian_9 must be >= 1; got x"),
        ("Abyssinian_9 0 1 1", "the class of Abyssinian_9 must be >= 1; got 0"),
        ("Birman_9 1 1 1", "test.txt: class 1 is Birman; got Abyssinian_10"),
        ("Birman_9 5 1 1", r"the classes must be 1 to 4; got \[1, 2, 3, 5\]"),
    ],
)
def test_pets(tmp_path, line, message):
    folder = made_up.pets(tmp_path).folder
    (folder / "annotations/trainval.txt").write_text(line)
    refuse("pets", folder, message)


@pytest.mark.usefixtures("any_count")
def test_aircraft(tmp_path):
    folder = made_up.aircraft(tmp_path).folder
    (folder / "data/images_variant_val.txt").write_text("0000101 Concorde II\n")
    refuse("aircraft", folder, "images_variant_val.txt: unknown class 'Concorde II'")
    (folder / "data/images_variant_val.txt").write_text("0000101\n")
    refuse("aircraft", folder, "images_variant_val.txt, line 1: must have 2 columns; got '0000101'")


@pytest.mark.usefixtures("any_count")
def test_dtd(tmp_path):
    folder = made_up.dtd(tmp_path).folder
    (folder / "labels/val1.txt").write_text("banded_0001.jpg\n")
    refuse("dtd", folder, "val1.txt: must list CLASS/FILE; got 'banded_0001.jpg'")


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize("dishes", [{"baklava": "baklava/1"}, {"baklava": [1]}, {"baklava": None}])
def test_food101(tmp_path, dishes):
    folder = made_up.food101(tmp_path).folder
    (folder / "meta/test.json").write_text(json.dumps(dishes))
    refuse("food101", folder, r"test.json: baklava must be a list of names")
    (folder / "meta/test.json").write_text("{")
    refuse("food101", folder, r"test.json is not JSON")


@pytest.mark.usefixtures("any_count")
def test_flowers102(tmp_path, monkeypatch):
    folder = made_up.flowers102(tmp_path).folder
    good = (folder / "setid.mat").read_bytes()
    for damaged in (good[:-20], b"x" * 200, b""):
        (folder / "setid.mat").write_bytes(damaged)
        refuse("flowers102", folder, "setid.mat has no readable entry 't")
    savemat(folder / "setid.mat", {"trnid": np.array([1, 9])})
    refuse("flowers102", folder, "setid.mat names image 9, imagelabels.mat has 7")
    for wrong in ([0, 1], [1.5], []):
        savemat(folder / "setid.mat", {"trnid": np.array(wrong)})
        refuse("flowers102", folder, "setid.mat: trnid must be whole numbers from 1")
    savemat(folder / "setid.mat", {"valid": np.array([1])})
    refuse("flowers102", folder, "setid.mat has no readable entry 'trnid'")
    (folder / "setid.mat").write_bytes(good)
    savemat(folder / "imagelabels.mat", {"labels": np.full(7, 103)})
    refuse("flowers102", folder, "imagelabels.mat: a class is at most 102; got 103")
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    refuse("flowers102", folder, r"Matlab files, which scipy reads: pip install 'dsf-ssl\[flowers")


@pytest.mark.usefixtures("any_count")
def test_caltech101(tmp_path):
    folder = made_up.caltech101(tmp_path).folder
    (folder / "101_ObjectCategories/accordion/image_0001.jpg").unlink()
    refuse("caltech101", folder, "accordion must have more than 30 images; got 30")


@pytest.mark.usefixtures("any_count")
def test_caltech101_draws_each_class_anew(tmp_path):
    folder = made_up.caltech101(tmp_path).folder
    images = folder / "101_ObjectCategories"
    for name in ("one", "two", "three"):
        shutil.copytree(images / "Faces", images / name)
    split = prepare("caltech101", str(folder), size=SIDE).split("test")
    labels, reds = split.labels(), split.images()[:, 0, 0, 0]
    drawn = {tuple(reds[labels == label].tolist()) for label in (0, 2, 3, 4)}
    assert all(len(reds) == 3 for reds in drawn)
    assert len(drawn) == 4


@pytest.mark.usefixtures("any_count")
def test_imagenette(tmp_path):
    folder = made_up.imagenette(tmp_path).folder
    (folder / "val/n02084071").mkdir()
    refuse("imagenette", folder, "val has a folder 'n02084071', which is none of its classes")
    (folder / "val/n02084071").rmdir()
    shutil.rmtree(folder / "train/n03028079")
    refuse("imagenette", folder, "train lacks 1 of 10 classes, the first is n03028079; must have a")


@pytest.mark.usefixtures("any_count")
def test_tiny_imagenet(tmp_path):
    folder = made_up.tiny_imagenet(tmp_path).folder
    annotations = folder / "val/val_annotations.txt"
    good = annotations.read_text()
    annotations.write_text(good + "val_7.JPEG\tn02123045\t0\t0\t1\t1\n")
    refuse("tiny-imagenet", folder, "val_annotations.txt: unknown class 'n02123045'")
    annotations.write_text(good)
    (folder / "wnids.txt").write_text("cat\n")
    refuse("tiny-imagenet", folder, "train lacks 1 of 1 classes, the first is cat")
    shutil.rmtree(folder / "train")
    Image.new("RGB", (8, 8)).save(folder / "val/images/val_0.JPEG", "PNG")
    (folder / "train/cat").mkdir(parents=True)
    annotations.write_text("val_0.JPEG\tcat\t0\t0\t1\t1\n")
    refuse("tiny-imagenet", folder, "class must be a WordNet number of ImageNet; got 'cat'")
