import pytest


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty folder of stores, on a machine where no data set lies about."""
    folder = tmp_path / "root"
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DSF_DATA", str(folder))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return folder
