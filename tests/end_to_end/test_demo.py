import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_demo_learns(tmp_path):
    """What a newcomer runs first, as it is: kNN ends ten points above the untrained encoder."""
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "dsf", "demo", "-o", str(folder)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    results = json.loads((folder / "results.json").read_text())
    for name, part in (("knn", "backbone"), ("linear", "accuracy")):
        before, after = results[f"untrained-{name}"][part], results[name][part]
        assert after - before >= (0.10 if name == "knn" else 0.0)
        assert f"{100 * before:.1f} % before, {100 * after:.1f} % after" in run.stdout
    assert run.stdout.splitlines()[-1] == str(folder / "report.html")
    assert (folder / "report.html").stat().st_size > 100_000
