import hashlib
import os
import threading
import time
import warnings

import miniature
import numpy as np
import pytest
import torch
from PIL import Image

from dsf.data import BrokenImagesError, load, open_store, prepare, writer
from dsf.data.folder import FolderSource
from dsf.data.images import read_square

SIDE = 16


@pytest.fixture
def few_a_shard(monkeypatch):
    monkeypatch.setattr(writer, "SHARD_BYTES", 3 * SIDE * SIDE * 3)


@pytest.fixture
def pictures(tmp_path):
    return tmp_path / "my pictures"


def make(folder, **options):
    return prepare(f"folder:{folder}", size=SIDE, **options)


@pytest.mark.usefixtures("few_a_shard", "root")
def test_a_folder_for_each_class(pictures):
    miniature.picture_folder(pictures, {"dog": 4, "cat/deep/down": 2, "cat": 3, ".hidden": 1})
    (pictures / "notes.txt").write_text("no image")
    (pictures / "cat" / ".DS_Store").write_bytes(b"x")
    for name in ("cat/a.heic", "dog/b.HEIC", "dog/README"):
        (pictures / name).write_bytes(b"x")
    store = make(pictures)
    split = store.split("train")
    assert store.classes == ("cat", "dog")
    assert store.counts == {"train": 9}
    assert store.ignored == {"": 1, ".heic": 2, ".txt": 1}
    assert split.labels().tolist() == [0] * 5 + [1] * 4
    files = [
        *sorted((pictures / "cat").glob("*.png")),
        *sorted((pictures / "cat/deep").rglob("*.png")),
    ]
    files += sorted((pictures / "dog").glob("*.png"))
    for file, image, size in zip(files, split.images(), split.sizes(), strict=True):
        with Image.open(file) as picture:
            assert size.tolist() == [picture.height, picture.width]
            expected = picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            assert np.array_equal(image.permute(1, 2, 0), np.asarray(expected))


@pytest.mark.usefixtures("root")
def test_flat_and_unlabelled(pictures):
    miniature.picture_folder(pictures, {"": 5})
    (pictures / "UPPER.PNG").write_bytes((pictures / "0000.png").read_bytes())
    split = make(pictures).split("train")
    assert len(split) == 6
    assert not split.labelled
    assert split.classes == ()
    assert torch.equal(split.images()[0], split.images()[5])


@pytest.mark.usefixtures("root")
def test_splits(pictures):
    miniature.picture_folder(
        pictures, {"train/a": 2, "train/b": 1, "val/b": 2, "test/a": 1, "test/c": 1}
    )
    store = make(pictures)
    assert store.counts == {"train": 3, "validation": 2, "test": 2}
    assert store.classes == ("a", "b", "c")
    assert store.split("validation").labels().tolist() == [1, 1]
    assert store.split("test").labels().tolist() == [0, 2]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "names",
    [("Train", "Val", "TEST"), ("training", "valid", "testing"), ("train", "validation", "Test")],
)
def test_splits_by_other_names(pictures, names):
    train, val, test = names
    miniature.picture_folder(pictures, {f"{train}/a": 2, f"{val}/a": 1, f"{test}/a": 3})
    store = make(pictures)
    assert list(store.counts.items()) == [("train", 2), ("validation", 1), ("test", 3)]
    assert store.classes == ("a",)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", ["val", "Validation"])
def test_validation_images_are_for_tests_where_no_others_are(pictures, name):
    miniature.picture_folder(pictures, {"train/a": 2, f"{name}/a": 1})
    assert list(make(pictures).counts.items()) == [("train", 2), ("test", 1)]


@pytest.mark.usefixtures("root")
def test_a_split_has_one_folder(pictures):
    miniature.picture_folder(pictures, {"train/a": 1, "dev/a": 1, "val/a": 1})
    with pytest.raises(ValueError, match="dev/ and val/ are the same split, validation; leave one"):
        make(pictures)


@pytest.mark.usefixtures("root")
def test_splits_beside_something_else(pictures):
    miniature.picture_folder(pictures, {"Train/a": 1, "Test/a": 1, "more": 1})
    with pytest.raises(ValueError, match="it has both: Test/ and Train/ are splits, more/ is none"):
        make(pictures)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "names", [("car", "train"), ("dev", "val"), ("Training", "train", "sleep")]
)
def test_splits_may_be_classes(pictures, names):
    miniature.picture_folder(pictures, dict.fromkeys(names, 2))
    store = make(pictures)
    assert store.classes == tuple(sorted(names))
    assert store.counts == {"train": 2 * len(names)}


@pytest.mark.usefixtures("root")
def test_the_fingerprint_of_splits_is_what_it_was(pictures):
    # a store made by an earlier version must not be made again
    miniature.picture_folder(pictures, {"train/a": 1, "test/a": 1})
    for file in pictures.rglob("*.png"):
        os.utime(file, ns=(0, 0))
        file.write_bytes(b"x")
        os.utime(file, ns=(0, 0))
    expected = hashlib.sha256(
        b"('train', 'train/a/0000.png', 0, 1, 0)('test', 'test/a/0000.png', 0, 1, 0)"
    )
    assert FolderSource(pictures, SIDE).fingerprint == expected.hexdigest()


@pytest.mark.usefixtures("root")
def test_a_folder_must_be_named():
    with pytest.raises(ValueError, match="folder:. the current one; got no path"):
        prepare("folder:")


@pytest.mark.usefixtures("root")
def test_loading_a_folder_that_is_not_there(pictures):
    with pytest.raises(FileNotFoundError, match=r"my pictures: there is no folder .*my pictures$"):
        load(f"folder:{pictures}")
    miniature.picture_folder(pictures, {"a": 1})
    with pytest.raises(FileNotFoundError, match="is not prepared"):
        load(f"folder:{pictures}")
    make(pictures)
    pictures.rename(pictures.with_name("elsewhere"))
    assert len(load(f"folder:{pictures}")) == 1  # the store is enough


@pytest.mark.usefixtures("root")
def test_links_that_turn_in_circles(pictures):
    miniature.picture_folder(pictures, {"a": 2})
    os.symlink(pictures / "a", pictures / "a" / "again")
    assert make(pictures).counts == {"train": 2}


@pytest.mark.usefixtures("root")
def test_folders_that_will_not_do(pictures):
    with pytest.raises(FileNotFoundError, match="there is no folder .*my pictures$"):
        make(pictures)
    pictures.mkdir()
    with pytest.raises(ValueError, match=r"my pictures has no images \(\.avif, "):
        make(pictures)
    miniature.picture_folder(pictures, {"": 1, "a": 1})
    with pytest.raises(ValueError, match="must hold images or class folders; it has both: 0000"):
        make(pictures)
    miniature.picture_folder(pictures / "b", {"train/x": 1, "test": 1})
    with pytest.raises(ValueError, match="all splits must have class folders or none; test has"):
        make(pictures / "b")
    with pytest.raises(ValueError, match=r"size must be in \[1, 4096\]; got 0"):
        prepare(f"folder:{pictures}", size=0)
    with pytest.raises(ValueError, match="says itself where the images are"):
        prepare(f"folder:{pictures}", source="npm")


def broken(pictures):
    """Four good images, and one of each that cannot be read."""
    miniature.picture_folder(pictures, {"a": 2, "b": 2})
    (pictures / "a" / "0000-empty.png").write_bytes(b"")
    (pictures / "a" / "truncated.jpg").write_bytes(miniature.encoded("JPEG")[:-1000])
    (pictures / "b" / "bomb.png").write_bytes(miniature.raw_png(9500, 9500, 8, 2, [b""]))
    (pictures / "b" / "text.png").write_bytes(b"this is text")
    return {
        "a/0000-empty.png": "is empty (0 bytes)",
        "a/truncated.jpg": "is truncated or damaged: image file is truncated",
        "b/bomb.png": "has 9500 x 9500 pixels; more than 89,478,485 are taken for",
        "b/text.png": "is not an image that Pillow can read",
    }


def assert_reported(left_out, expected):
    assert [entry.path for entry in left_out] == list(expected)
    for entry in left_out:
        assert entry.reason.startswith(expected[entry.path])


@pytest.mark.usefixtures("few_a_shard")
def test_broken_images_are_reported_and_skipped_only_if_asked(pictures, root, monkeypatch):
    expected = broken(pictures)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            BrokenImagesError,
            match=r"^4 of 8 images cannot be read, the first is a/0000-empty.png: is empty "
            r"\(0 bytes\)\. Mend or remove them, or leave them out with skip_broken=True$",
        ) as caught:
            make(pictures)
    assert_reported(caught.value.left_out, expected)
    with pytest.raises(FileNotFoundError, match="is not prepared"):
        open_store(f"folder:{pictures}")
    store = make(pictures, skip_broken=True)
    assert_reported(store.left_out, expected)
    assert store.counts == {"train": 4}
    split = store.split("train")
    assert split.labels().tolist() == [0, 0, 1, 1]
    assert split.sizes().shape == (4, 2)
    good = sorted(pictures.rglob("000[01].png"))
    sizes = [Image.open(path).size[::-1] for path in good]
    assert split.sizes().tolist() == [list(size) for size in sizes]
    # The first, failing run kept what it had read, and that made no difference.
    fresh = root.with_name("fresh")
    monkeypatch.setenv("DSF_DATA", str(fresh))
    make(pictures, skip_broken=True)
    assert miniature.contents(fresh) == miniature.contents(root)


@pytest.mark.usefixtures("root")
def test_mended_images_are_read_again(pictures):
    broken(pictures)
    with pytest.raises(BrokenImagesError):
        make(pictures)
    good = (pictures / "a" / "0000.png").read_bytes()
    for name in ("a/0000-empty.png", "a/truncated.jpg", "b/bomb.png", "b/text.png"):
        (pictures / name).write_bytes(good)
    assert make(pictures).counts == {"train": 8}


@pytest.mark.usefixtures("few_a_shard", "root")
def test_a_shard_of_nothing_but_broken_images(pictures):
    miniature.picture_folder(pictures, {"": 7})
    for number in (3, 4, 5):
        (pictures / f"000{number}.png").write_bytes(b"")
    store = make(pictures, skip_broken=True)
    assert store.split("train").images().shape == (4, 3, SIDE, SIDE)
    store.verify()
    for path in pictures.iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="no image of split 'train' can be read"):
        make(pictures, skip_broken=True)


@pytest.mark.usefixtures("root")
def test_a_folder_that_changed_is_prepared_again(pictures):
    miniature.picture_folder(pictures, {"a": 3})
    first = make(pictures)
    written = (first.path / "manifest.json").stat().st_mtime_ns
    assert (make(pictures).path / "manifest.json").stat().st_mtime_ns == written
    miniature.picture_folder(pictures, {"b": 2})
    assert make(pictures).counts == {"train": 5}
    assert miniature.folders(first.path.parent) == [first.path.name]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux's sched_getaffinity")
@pytest.mark.usefixtures("root")
def test_as_many_images_are_decoded_at_a_time_as_there_are_cores_for_us(pictures, monkeypatch):
    """A job with memory for 3 of 128 cores ends where 128 images are decoded."""
    miniature.picture_folder(pictures, {"a": 20})
    threads = set()

    def read(path, size):
        time.sleep(0.01)  # so that no thread is idle when the next one could be started
        threads.add(threading.current_thread())
        return read_square(path, size)

    monkeypatch.setattr("dsf.data.pictures.read_square", read)
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    make(pictures)
    assert len(threads) == 3


@pytest.mark.usefixtures("root")
def test_who_streams_while_it_is_prepared_again_gets_no_other_images(pictures):
    miniature.picture_folder(pictures, {"a": 3})
    first = make(pictures)
    os.utime(first.path / "train-00000.npy", (0, 0))  # older than a second
    split = first.split("train")
    assert len(split.gather(torch.arange(3))) == 3
    miniature.picture_folder(pictures, {"b": 2})
    make(pictures)
    with pytest.raises(OSError, match="has changed since it was opened; was its data set prepared"):
        split.gather(torch.arange(3))


def test_sizes_are_stores_of_their_own(pictures, root):
    name = f"folder:{miniature.picture_folder(pictures, {'a': 3})}"
    with pytest.raises(FileNotFoundError, match="my pictures' --size 9`"):
        load(name, size=9)
    prepare(name, size=9)
    assert load(name).image_size == 9
    prepare(name, size=11)
    assert load(name, size=11).image_size == 11
    with pytest.raises(ValueError, match="sizes 9, 11: take size=11, the one prepared last"):
        load(name)
    assert len(miniature.folders(root)) == 2


@pytest.mark.usefixtures("root")
def test_names_that_are_not_text(pictures):
    miniature.picture_folder(pictures, {"a": 1})
    odd = os.fsencode(pictures / "a") + b"/caf\xe9.png"
    with open(odd, "wb"):
        pass
    store = make(pictures, skip_broken=True)
    assert [os.fsencode(entry.path) for entry in store.left_out] == [b"a/caf\xe9.png"]


@pytest.mark.usefixtures("root")
def test_classes_are_text(pictures):
    """They stand in pages and figures, which no other bytes can."""
    miniature.picture_folder(pictures, {"a": 1, "b": 1})
    os.rename(pictures / "a", os.fsencode(pictures) + b"/caf\xe9")
    store = make(pictures)
    assert store.classes == ("b", "caf\\xe9")
    assert store.split("train").labels().tolist() == [0, 1]
