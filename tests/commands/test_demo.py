from pathlib import Path

import pytest

from dsf.cli import main
from dsf.experiments import load_recipe
from dsf.experiments.demo import QUICK
from dsf.training import Interrupted


@pytest.mark.parametrize(
    ("words", "folder", "overrides"),
    [
        ([], "runs/demo", ()),
        (["--quick"], "runs/demo-quick", QUICK),
        (["--quick", "-o", "here"], "here", QUICK),
    ],
)
def test_quick_takes_other_settings_and_another_folder(
    monkeypatch, capsys, words, folder, overrides
):
    called = []

    def stop(*arguments, **options):
        called.append(arguments)
        raise Interrupted("stopped")

    monkeypatch.setattr("dsf.experiments.demo.run_demo", stop)
    assert main(["demo", *words]) == 75
    assert called == [(Path(folder), overrides)]
    again = "--quick " if overrides else ""
    assert capsys.readouterr().out == f"stopped; to go on: dsf demo {again}-o {folder}\n"


def test_quick_is_the_demo_with_less_training():
    plain, quick = load_recipe("demo"), load_recipe("demo", list(QUICK))
    assert quick.epochs < plain.epochs / 4
    assert quick.model_dump(include={"data", "views", "loss"}) == plain.model_dump(
        include={"data", "views", "loss"}
    )
