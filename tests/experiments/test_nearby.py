import pytest

from dsf.cli import main
from dsf.experiments.nearby import run_hint


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Runs called demo and photos, and a folder that only looks like one of them."""
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "photos"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text("epochs: 1\n")
    (tmp_path / "runs" / "demmo").mkdir()
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("folder", "hint"),
    [
        ("runs/dmeo", ": did you mean runs/demo?"),
        ("runs/Photo", ": did you mean runs/photos?"),
        ("runs/xyz", ""),
        ("rnus/demo", ""),
        ("runs/demmo", ""),
        ("runs", "; there are runs in it, such as runs/demo"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_what_is_said(folder, hint):
    assert run_hint(folder) == hint


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    "words",
    [
        ["eval", "RUN", "knn"],
        ["report", "RUN"],
        ["report", "runs/demo", "RUN"],
        ["export", "RUN", "--to", "timm"],
        ["train", "-o", "RUN", "--resume"],
    ],
    ids=" ".join,
)
def test_every_verb_that_takes_a_run(capsys, words):
    for typed, end in (("runs/dmeo", ": did you mean runs/demo?"), ("runs", "such as runs/demo")):
        assert main([typed if word == "RUN" else word for word in words]) == 2
        assert capsys.readouterr().err.endswith(f"{end}\n")
