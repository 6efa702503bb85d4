"""Downloads: by torchvision, from this machine in place of the homes of the data sets."""

import functools
import hashlib
import http.server
import io
import shutil
import tarfile
import threading
import zipfile

import made_up
import miniature
import pytest

from dsf.data import prepare
from dsf.data.progress import Lines
from dsf.data.sets import SETS, unpacked

SIDE = 6
LAYOUTS = {
    "aircraft": "FGVCAircraft",
    "caltech101": "Caltech101",
    "dtd": "DTD",
    "flowers102": "Flowers102",
    "food101": "Food101",
    "imagenette": "Imagenette",
    "pets": "OxfordIIITPet",
    "stl10": "STL10",
}


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder, and the address under which this machine serves it."""
    monkeypatch.setenv("no_proxy", "*")
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def archive(path, *folders):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as file:
        for folder in folders:
            file.add(folder, folder.name)
    return path


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.mark.usefixtures("any_count")
def test_pets_from_their_archives(tmp_path, root, served, monkeypatch):
    from torchvision.datasets import OxfordIIITPet

    expected = made_up.pets(tmp_path / "sets")
    folder, address = served
    archives = [
        archive(folder / f"{name}.tar.gz", expected.folder / name)
        for name in ("images", "annotations")
    ]
    resources = [(f"{address}/{path.name}", md5(path)) for path in archives]
    monkeypatch.setattr(OxfordIIITPet, "_RESOURCES", resources)
    store = prepare("pets", size=SIDE)  # it is not on this machine
    assert store.counts == {split: len(pairs) for split, pairs in expected.splits.items()}
    assert miniature.folders(root) == ["pets-6"]  # the download is gone
    home = "https://www.robots.ox.ac.uk/~vgg/data/pets/"
    assert store.manifest["source"] == f"downloaded, see {home}"


@pytest.mark.usefixtures("any_count")
def test_dtd_from_a_damaged_archive(tmp_path, served, monkeypatch):
    from torchvision.datasets import DTD

    expected = made_up.dtd(tmp_path / "sets")
    folder, address = served
    file = archive(folder / "dtd-r1.0.1.tar.gz", expected.folder)
    monkeypatch.setattr(DTD, "_URL", f"{address}/{file.name}")
    monkeypatch.setattr(DTD, "_MD5", "0" * 32)
    with pytest.raises(
        ConnectionError, match="cannot download dtd: .*orrupt.*or give --source PAT"
    ):
        prepare("dtd", "download", size=SIDE)
    monkeypatch.setattr(DTD, "_URL", f"{address}/nothing.tar.gz")
    with pytest.raises(ConnectionError, match="cannot download dtd: .*File not found"):
        prepare("dtd", "download", size=SIDE)
    monkeypatch.setattr(DTD, "_URL", f"{address}/{file.name}")
    monkeypatch.setattr(DTD, "_MD5", md5(file))
    assert prepare("dtd", "download", size=SIDE).counts["validation"] == 6


@pytest.mark.usefixtures("any_count")
def test_caltech101_from_archives_in_an_archive(tmp_path, monkeypatch):
    from torchvision.datasets import caltech, utils

    expected = made_up.caltech101(tmp_path / "sets")
    inner = archive(
        tmp_path / "caltech-101" / "101_ObjectCategories.tar.gz",
        expected.folder / "101_ObjectCategories",
    )
    with zipfile.ZipFile(tmp_path / "caltech-101.zip", "w") as outer:
        outer.write(inner, "caltech-101/101_ObjectCategories.tar.gz")

    def from_here(url, download_root, filename, md5):
        utils.extract_archive(str(tmp_path / filename), download_root)
        shutil.copy(tmp_path / filename, download_root)  # torchvision removes it there

    monkeypatch.setattr(caltech, "download_and_extract_archive", from_here)
    store = prepare("caltech101", "download", size=SIDE)
    assert store.counts == {"train": 60, "test": 4}
    assert "30 training images a class, drawn with seed 0" in store.note


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize("name", LAYOUTS)
def test_each_is_asked_of_torchvision(name, tmp_path, monkeypatch):
    from torchvision import datasets

    made_up.ALL[name](tmp_path / "sets")
    calls = []

    def copy(folder, download):
        calls.append(download)
        shutil.copytree(tmp_path / "sets", folder, dirs_exist_ok=True)

    theirs = getattr(datasets, LAYOUTS[name])
    copy.classes = getattr(theirs, "classes", None)
    monkeypatch.setattr(datasets, LAYOUTS[name], copy)
    prepare(name, "download", size=SIDE)
    assert calls == [True]


def test_no_other_is_downloaded():
    assert {data_set.name for data_set in SETS} - set(LAYOUTS) == {
        "imagenet",
        "imagenet100",
        "tiny-imagenet",
    }


def test_an_interrupted_download_begins_again(tmp_path, root, any_count, monkeypatch):
    from torchvision import datasets

    expected = made_up.dtd(tmp_path / "sets")

    def interrupted(folder, download):
        shutil.copytree(tmp_path / "sets", folder, dirs_exist_ok=True)
        shutil.rmtree(f"{folder}/dtd/dtd/images/banded")
        raise KeyboardInterrupt

    class Whole:
        def __init__(self, folder, download):
            assert not list(root.rglob("*.jpg"))  # torchvision would take it for the whole
            shutil.copytree(tmp_path / "sets", folder, dirs_exist_ok=True)

    monkeypatch.setattr(datasets, "DTD", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare("dtd", "download", size=SIDE)
    monkeypatch.setattr(datasets, "DTD", Whole)
    said = io.StringIO()
    store = prepare("dtd", "download", size=SIDE, progress=Lines(said))
    assert store.counts == {split: len(pairs) for split, pairs in expected.splits.items()}
    assert said.getvalue().startswith("downloading dtd as torchvision's DTD\n")


def test_a_finished_download_is_kept_until_the_store_is(tmp_path, root, any_count, monkeypatch):
    from torchvision import datasets

    calls = []

    def with_a_broken_image(folder, download):
        calls.append(folder)
        made = made_up.dtd(tmp_path / f"sets{len(calls)}")
        (made.folder / "images/banded/banded_test_0.jpg").write_bytes(b"")
        shutil.copytree(tmp_path / f"sets{len(calls)}", folder, dirs_exist_ok=True)

    monkeypatch.setattr(datasets, "DTD", with_a_broken_image)
    with pytest.raises(ValueError, match="1 of 18 images cannot be read"):
        prepare("dtd", "download", size=SIDE)
    assert prepare("dtd", "download", size=SIDE, skip_broken=True).counts["test"] == 5
    assert len(calls) == 1


def test_what_is_there_in_part_is_said(root, any_count, monkeypatch):
    from torchvision import datasets

    def offline(folder, download):
        raise OSError("no network")

    monkeypatch.setattr(datasets, "OxfordIIITPet", offline)
    expected = made_up.pets(root)
    (expected.folder / "annotations/test.txt").unlink()
    said = io.StringIO()
    with pytest.raises(ConnectionError, match="cannot download pets: no network; try again, or"):
        prepare("pets", progress=Lines(said))
    assert "oxford-iiit-pet does not hold pets: it has no annotations/test.txt" in said.getvalue()


def test_tables(tmp_path):
    file = tmp_path / "list.txt"
    file.write_text("one two  three four \n\n  five six seven\n")
    rows = list(unpacked.table(file, 2))
    assert rows == [["one", "two  three four"], ["five", "six seven"]]
    with pytest.raises(ValueError, match=r"list.txt, line 3: must have 4 columns; got '  five six"):
        list(unpacked.table(file, 4))
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"list.txt is not text"):
        list(unpacked.table(file, 1))
