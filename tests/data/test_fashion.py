import dataclasses

import miniature
import numpy as np
import pytest
import torch

from dsf.data import fashion, prepare

MINI = dataclasses.replace(fashion.FASHION_MNIST, content={}, splits={})
NAMES = {"train": "train", "test": "t10k"}


def arrays():
    generator = np.random.default_rng(0)
    return {
        split: (
            generator.integers(0, 256, (count, 28, 28), dtype=np.uint8),
            generator.integers(0, 10, count),
        )
        for split, count in (("train", 12), ("test", 5))
    }


def files(compressed):
    suffix = ".gz" if compressed else ""
    return {
        f"{NAMES[split]}-{kind}-ubyte{suffix}": miniature.idx(array, compressed)
        for split, pair in arrays().items()
        for kind, array in zip(("images-idx3", "labels-idx1"), pair)
    }


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("inside", ["", "fashion-mnist", "FashionMNIST/raw"])
def test_files_are_read(tmp_path, root, compressed, inside):
    miniature.write_folder(tmp_path / "files" / inside, files(compressed))
    store = prepare(MINI, str(tmp_path / "files"))
    assert store.image_size == 28
    assert store.classes[9] == "ankle boot"
    for split, (images, labels) in arrays().items():
        tensor = store.split(split).images()
        assert torch.equal(tensor, torch.from_numpy(images)[:, None].expand(-1, 3, -1, -1))
        assert torch.equal(store.split(split).labels(), torch.from_numpy(labels))


def test_they_are_found_below_the_root(root):
    miniature.write_folder(root / "FashionMNIST" / "raw", files(True))
    assert prepare(MINI).counts == {"train": 12, "test": 5}


def test_a_damaged_store_is_not_taken_for_a_source(tmp_path, root, monkeypatch):
    monkeypatch.setattr(fashion, "search_folders", lambda: [root])
    store = prepare(MINI, str(miniature.write_folder(tmp_path / "files", files(True))))
    (store.path / "train-00000.npy").unlink()
    with pytest.raises(FileNotFoundError, match="fashion-mnist is not on this machine"):
        prepare(MINI)


def test_where_debian_puts_them():
    from dsf.data.layout import search_folders

    folders = [f"{folder}/{name}" for folder in search_folders() for name in fashion._FOLDERS]
    assert "/usr/share/datasets/fashion-mnist" in folders


def test_real_files_if_they_are_here(root):
    try:
        store = prepare("fashion-mnist")
    except FileNotFoundError:
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    assert store.counts == {"train": 60_000, "test": 10_000}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("train-images-idx3-ubyte.gz", b"\x1f\x8b\x08\x00broken", "is damaged"),
        ("train-images-idx3-ubyte.gz", b"text", "is damaged"),
        ("train-images-idx3-ubyte", b"", "is not an IDX file of bytes"),
        ("train-images-idx3-ubyte", b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "is not an IDX file"),
        (
            "train-images-idx3-ubyte",
            b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes(5),
            r"shape \(2, 3\) needs 6 bytes; got 5",
        ),
        (
            "train-images-idx3-ubyte",
            b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes(6),
            r"must hold \(N, H, W\); got \(2, 3\)",
        ),
    ],
)
def test_damaged_files(tmp_path, root, name, data, message):
    good = {key: value for key, value in files(True).items() if not key.startswith(name)}
    folder = miniature.write_folder(tmp_path / "files", good | {name: data})
    with pytest.raises(ValueError, match=message):
        prepare(MINI, str(folder))


def test_missing_files(tmp_path, root):
    folder = miniature.write_folder(tmp_path / "files", {})
    with pytest.raises(FileNotFoundError, match="has neither train-images-idx3-ubyte nor"):
        prepare(MINI, str(folder))
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        prepare(MINI, str(tmp_path / "nowhere"))


def test_content_that_is_another(tmp_path, root):
    folder = miniature.write_folder(tmp_path / "files", files(True))
    with pytest.raises(ValueError, match="does not hold fashion-mnist"):
        prepare("fashion-mnist", str(folder))
