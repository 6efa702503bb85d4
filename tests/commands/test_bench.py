import json

import pytest
import tiny

from dsf.cli import main


def test_a_step_is_measured(tmp_path, capsys):
    report = tmp_path / "step.json"
    arguments = ["bench", "step", *tiny.SETTINGS, "--steps", "2", "--json", str(report)]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "as the recipe has it",
        "not as a CUDA graph",
        "nor compiled",
        "eager fp32",
    ]
    assert all("views/s" in line for line in lines)
    written = json.loads(report.read_text())
    assert written["recipe"] == "demo"
    assert {"command", "commit", "packages", "seed", "wall_s"} <= set(written["provenance"])
    slowest = written["steps"][-1]
    assert slowest["times"] == 1
    for step in written["steps"]:
        assert step["times"] == pytest.approx(slowest["milliseconds"] / step["milliseconds"])
        assert step["views_per_second"] > step["images_per_second"] > 0


def test_settings_are_checked(capsys):
    assert main(["bench", "step", "demo", "no=1"]) == 1
    assert "no" in capsys.readouterr().err
    assert main(["bench", "step", "demo", "--steps", "-1"]) == 1
    assert "steps must be at least 1; got -1" in capsys.readouterr().err
