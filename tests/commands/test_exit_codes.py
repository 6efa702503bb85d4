"""0, or 2 where a command could not begin, 1 where it failed at work, 75 and 130 where stopped."""

import re
from pathlib import Path

import miniature
import pytest
import tiny

from dsf.cli import main, make_parser
from dsf.commands.parser import UsageError, asked
from dsf.training import Interrupted

TINY = [*tiny.SETTINGS, "epochs=1"]
PAGE = Path(__file__).parents[2] / "docs" / "start.md"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with photos, prepared in two sizes, and something that is no run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    miniature.picture_folder(tmp_path / "photos", {"a": 2, "b": 2})
    for size in ("8", "9"):
        assert main(["data", "prepare", "folder:photos", "--size", size]) == 0
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter").write_text("dear")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "1.png").write_bytes(b"no picture")
    return tmp_path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words",
    [
        # an option
        ["eval", "run", "--k", "0"],
        ["bench", "step", "--steps", "0"],
        ["data", "show", "embedded", "-o", "x.png", "--images", "5001"],
        ["eval", "resnet-small", "--data", "embedded", "--k", "5001"],
        ["eval", "resnet-small", "--data", "embedded", "--device", "tpu"],
        ["report", "taken", "--device", "tpu"],
        # a setting
        ["train", "demo", "epoch=1"],
        ["train", "demo", *TINY, "batch_size=97"],
        ["train", "demo", "epoch=1", "--dry-run"],
        ["bench", "step", "demo", "epoch=1"],
        ["reproduce", "imagenette/tuning/dsf", "epoch=1", "--results", "other"],
        ["data", "show", "embedded", "-o", "x.png", "--recipe", "demo", "epoch=1"],
        # a name
        ["train", "dmeo"],
        ["train", "dmeo.yaml"],
        ["bench", "step", "dmeo"],
        ["eval", "resnet-small", "kn", "--data", "embedded"],
        ["eval", "resnet-small", "--data", "cifar11"],
        ["eval", "timm/resnet1", "--data", "embedded"],
        ["data", "prepare", "cifar11"],
        ["train", "demo", "data.name=cifar11"],
        ["data", "show", "cifar11", "-o", "x.png"],
        ["data", "show", "embedded", "-o", "x.png", "--split", "val"],
        ["train", "demo", *TINY, "data.split=val"],
        ["reproduce", "table99"],
        ["reproduce", "--list", "--plan", "none"],
        # what is not there, or is not ready
        ["eval", "runs/dmeo"],
        ["report", "runs/dmeo"],
        ["export", "runs/dmeo", "--to", "timm"],
        ["train", "-o", "runs/dmeo", "--resume"],
        ["data", "prepare", "folder:photo"],
        ["data", "show", "folder:photo", "-o", "x.png"],
        ["train", "demo", *TINY, "data.name=folder:photo"],
        ["eval", "resnet-small", "--data", "folder:photo"],
        ["train", "demo", *TINY, "data.name=cifar100"],
        ["data", "prepare", "cifar100", "--source", "nowhere"],
        # which of two
        ["data", "show", "folder:photos", "-o", "x.png"],
        ["train", "demo", *TINY, "data.name=folder:photos"],
        ["eval", "resnet-small", "--data", "folder:photos"],
        # a folder that is taken
        ["train", "demo", *TINY, "-o", "taken"],
        ["demo", "-o", "taken"],
        ["report", "taken"],
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_what_cannot_begin_leaves_nothing_and_exits_with_2(here, capsys, words):
    before = miniature.contents(here)
    capsys.readouterr()
    assert main(words) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(r"dsf: .+\n", errors)
    assert miniature.contents(here) == before


def fail(error):
    def raise_it(*arguments, **options):
        raise error

    return raise_it


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "place", "error", "code"),
    [
        (["train", "demo", *TINY], "dsf.training.Loop.run", ValueError("not finite"), 1),
        (["train", "demo", *TINY], "dsf.training.Loop.run", FileNotFoundError("gone"), 1),
        (["train", "demo", *TINY], "dsf.training.Loop.run", Interrupted("stopped"), 75),
        (["train", "demo", *TINY], "dsf.training.Loop.run", KeyboardInterrupt(), 130),
        (["train", "demo", *TINY], "dsf.experiments.run._make", PermissionError(13, "no"), 1),
        (
            ["eval", "resnet-small", "--data", "embedded"],
            "dsf.evaluation.KNN.evaluate",
            ValueError("features are not finite"),
            1,
        ),
        (["data", "prepare", "folder:broken"], None, None, 1),
        (
            ["data", "prepare", "folder:photos"],
            "dsf.data.writer._write_shard",
            OSError(28, "No space left"),
            1,
        ),
        (["demo", "-o", "new"], "dsf.experiments.demo.load_recipe", ValueError("no"), 1),
    ],
)
def test_what_fails_later(monkeypatch, capsys, words, place, error, code):
    if place:
        monkeypatch.setattr(place, fail(error))
    assert main(words) == code
    assert "Traceback" not in capsys.readouterr().err


def begin_and(error):
    with asked() as begin:
        begin()
        raise error


def test_what_is_wrong_with_a_call_until_work_begins():
    for error in (ValueError("a"), FileExistsError("b"), ModuleNotFoundError("c")):
        with pytest.raises(UsageError, match=f"^{error}$"), asked():
            raise error
        with pytest.raises(type(error), match=f"^{error}$"):
            begin_and(error)
    with pytest.raises(UsageError, match="^name: No such file$"), asked():
        raise FileNotFoundError(2, "No such file", "name")
    with pytest.raises(OSError, match="full"), asked():
        raise OSError(28, "full")


def test_the_codes_are_documented():
    table = re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.M)
    assert table == ["0", "1", "2", "75", "130"]
    (line,) = re.findall("Exit codes: .*", make_parser().format_help())
    assert re.findall(r"\d+", line) == table[:-1]
