from pathlib import Path

import pytest

from dsf.data import load, prepare
from dsf.data.nearby import nearest


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    for name in ("photos", "phonebook", ".photo", "below/pictures"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "photo.txt").write_text("")
    return tmp_path


@pytest.mark.usefixtures("here")
def test_the_nearest_of_those_that_fit():
    assert nearest(Path("photo"), Path.is_dir) == Path("photos")
    assert nearest(Path("photo"), Path.is_file) == Path("photo.txt")
    assert nearest(Path("below/picture"), Path.is_dir) == Path("below/pictures")
    assert nearest(Path("~nobody/photo"), Path.is_dir) is None
    assert nearest(Path("nothing"), Path.is_dir) is None
    assert nearest(Path("no/where"), Path.is_dir) is None
    assert nearest(Path("photo.txt/photos"), Path.is_dir) is None


@pytest.mark.parametrize("use", [load, prepare])
def test_folders_of_images(here, use):
    for name, meant in (("photo", "photos"), ("~/photo", "~/photos"), ("below/Pictures", None)):
        meant = meant or "below/pictures"
        with pytest.raises(FileNotFoundError, match=f": did you mean folder:{meant}[?]$"):
            use(f"folder:{name}")
    with pytest.raises(
        FileNotFoundError, match=rf"there is no folder {here}/nothing\. A relative "
    ):
        use("folder:nothing")
    with pytest.raises(FileNotFoundError, match=f"there is no folder {here}/nothing$"):
        use(f"folder:{here}/nothing")
    with pytest.raises(FileNotFoundError, match=f"{here}/photo.txt is not a folder$"):
        prepare("folder:photo.txt")
