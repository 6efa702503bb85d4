import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "special.py"


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_it_runs_and_says_what_it_found(tmp_path):
    report = tmp_path / "special.json"
    command = [sys.executable, str(SCRIPT), "--repeats", "3", "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "SciPy ive pair" in run.stdout
    result = json.loads(report.read_text())
    assert {row["what"] for row in result["speed"]} >= {"dsf eager, float64"}
    by_dimension = {row["p"]: row for row in result["range"]}
    assert all(row["dsf_fails_at"] == 0 for row in by_dimension.values())
    assert by_dimension[1024]["scipy_fails_at"] > 900
