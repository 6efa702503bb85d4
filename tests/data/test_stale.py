import os
import shutil
from datetime import date

import miniature
import pytest

from dsf.data import prepare
from dsf.data.stale import stale_note


@pytest.fixture
def photos(tmp_path, root):
    return miniature.picture_folder(tmp_path / "my photos", {"a": 3, "b": 2})


def touch(path):
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        (lambda photos: miniature.picture_folder(photos, {"a": 5}), ": 2 more images"),
        (lambda photos: (photos / "a" / "0001.png").unlink(), ": 1 fewer image"),
        (lambda photos: (photos / "a" / "0001.png").rename(photos / "b" / "x.png"), ""),
        (lambda photos: (photos / "a" / "0001.png").write_bytes(b"other"), ""),
        (lambda photos: touch(photos / "a" / "0001.png"), ""),
    ],
    ids=["added", "removed", "moved", "written", "touched"],
)
def test_what_has_changed(photos, change, counted):
    name = f"folder:{photos}"
    prepare(name, size=8)
    assert stale_note(name) is None
    change(photos)
    command = f"dsf data prepare '{name}' --size 8"
    assert stale_note(name) == (
        f"{name} has changed since its store was prepared, {date.today()}{counted}; "
        f"`{command}` takes that in"
    )


def test_preparing_again_mends_it(photos):
    name = f"folder:{photos}"
    prepare(name)
    prepare(name, size=8)
    miniature.picture_folder(photos, {"c": 1})
    assert f"`dsf data prepare '{name}'`" in stale_note(name, 256)  # the usual size
    prepare(name, size=8)
    assert stale_note(name, 8) is None
    assert stale_note(name, 256) is not None


def test_images_that_were_left_out_are_known(photos):
    (photos / "a" / "broken.png").write_bytes(b"")
    name = f"folder:{photos}"
    prepare(name, size=8, skip_broken=True)
    assert stale_note(name) is None
    (photos / "a" / "broken.png").unlink()
    assert ": 1 fewer image;" in stale_note(name)


def test_nothing_is_read(photos, monkeypatch):
    name = f"folder:{photos}"
    prepare(name, size=8)
    monkeypatch.setattr("dsf.data.pictures.read_square", lambda *_: pytest.fail("decoded"))
    for file in photos.rglob("*.png"):
        times = file.stat()
        file.write_bytes(b"x" * times.st_size)  # the same to whoever does not look inside
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert stale_note(name) is None


@pytest.mark.parametrize("change", ["gone", "a file", "empty", "mixed"])
def test_what_cannot_be_prepared_is_left_alone(photos, change):
    name = f"folder:{photos}"
    prepare(name, size=8)
    if change == "mixed":  # images beside the folders of classes
        (photos / "x.png").write_bytes(b"")
    else:
        shutil.rmtree(photos)
    if change == "a file":
        photos.write_text("")
    if change == "empty":
        photos.mkdir()
    assert stale_note(name) is None


def test_a_large_store_is_not_compared(photos, monkeypatch):
    name = f"folder:{photos}"
    prepare(name, size=8)
    miniature.picture_folder(photos, {"a": 4})
    monkeypatch.setattr("dsf.data.stale.MOST", 4)
    assert stale_note(name) is None


@pytest.mark.parametrize("name", ["embedded", "cifar10"])
def test_other_data_sets_do_not_change(name):
    assert stale_note(name) is None
