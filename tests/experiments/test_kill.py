import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kill.py"


@pytest.mark.slow
def test_five_kills_change_nothing(tmp_path):
    """The script itself fails where weights, metrics or a checkpoint are not as they should be."""
    report = tmp_path / "report.json"
    command = [sys.executable, str(SCRIPT), "--kills", "5", "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = json.loads(report.read_text())["kills"]
    assert len(rows) == 5
    assert rows[-1]["kept"] > 0
    assert all(row["lost"] <= 5 for row in rows)
