import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiler")]


@pytest.fixture
def run(tmp_path):
    def run_benchmark(name, *arguments):
        report = tmp_path / "report.json"
        how = arguments or ("--repeats", "3")
        command = [sys.executable, str(BENCHMARKS / name), *how, "--json", str(report)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return output, json.loads(report.read_text())

    return run_benchmark


def test_special(run):
    output, result = run("special.py")
    assert "SciPy ive pair" in output
    assert {row["what"] for row in result["speed"]} >= {"dsf eager, float64"}
    by_dimension = {row["p"]: row for row in result["range"]}
    assert all(row["dsf_fails_at"] == 0 for row in by_dimension.values())
    assert by_dimension[1024]["scipy_fails_at"] > 900


def test_loss(run):
    output, result = run("loss.py")
    assert "three N x K terms" in output
    assert {"command", "commit", "seed", "wall_s"} <= set(result["provenance"])
    assert all(row["compiled_ms"] > 0 for row in result["losses"])
    assert [row["logits"] for row in result["streaming"]][:2] == ["stored", "blocks"]
    assert all(row["error"] < 1e-5 for row in result["streaming"])


def test_batch_norm(run):
    _, result = run("batch_norm.py")
    assert len(result["rows"]) == 3
    assert all(row["eager_ms"] > 0 for row in result["rows"])


def test_augment(run):
    output, result = run("augment.py")
    assert "cifar at 32 pixels" in output
    assert {"command", "commit", "seed", "wall_s", "cores"} <= set(result["provenance"])
    small = result["32 pixels"]["rows"]
    assert {row["what"] for row in small} >= {"dsf exact, eager", "dsf fused, compiled"}
    for row in small + result["224 pixels"]["rows"]:
        assert row["views_per_s"] > 0
        assert row["times_torchvision"] > 0


def test_loader(run):
    output, result = run("loader.py")
    assert "cifar at 32 pixels" in output
    assert "200 files prepared in " in output
    assert {"command", "commit", "seed", "wall_s", "cores"} <= set(result["provenance"])
    small, large = (result[f"{size} pixels"]["rows"] for size in (32, 224))
    assert [row["loop"] for row in small] == ["views"] * 3 + ["step"] * 3
    assert [row["loop"] for row in large] == ["views"] * 3
    for rows in (small[:3], small[3:], large):
        assert [row["what"].split(", ")[0] for row in rows] == ["DataLoader"] + ["ViewLoader"] * 2
        for row in rows:
            expected = row["images_per_s"] / rows[0]["images_per_s"]
            assert row["times_torchvision"] == pytest.approx(expected)


def test_knn(run):
    output, result = run("knn.py")
    assert "scikit-learn" in output
    for table in ("10 classes", "1000 classes", "faiss-cpu", "scikit-learn"):
        rows = result[table]["rows"]
        assert rows[0]["what"] == "dsf"
        assert len(rows) == 2
        assert all(row["ms"] > 0 and row["agree"] > 0.99 for row in rows)
    assert 0.3 < result["10 classes"]["accuracy"] < 0.999


def test_corruption(run):
    output, result = run("corruption.py")
    assert "18 types x 1 severities" in output
    assert {"command", "commit", "seed", "wall_s"} <= set(result["provenance"])
    assert 0 < result["evaluation"]["mce"] < 1
    assert len(result["types"]) == 19
    assert all(row["times_cpu"] > 0 for row in result["rivals"])


def test_linear(run):
    output, result = run("linear.py")
    assert "11 weight decays" in output
    ours, theirs = result["rows"]
    assert (ours["what"], theirs["what"]) == ("dsf", "scikit-learn")
    assert theirs["agree"] > 0.97
    assert abs(ours["accuracy"] - theirs["accuracy"]) < 0.01
    assert 0.3 < ours["accuracy"] < 0.999
    assert result["paper"]["seconds"] > 0


def test_stream(run, tmp_path):
    store = tmp_path / "store"
    output, result = run("stream.py", "--images", "600", "--steps", "3", "--store", str(store))
    assert "begun again at batch " in output
    assert {"command", "commit", "seed", "wall_s"} <= set(result["provenance"])
    assert [row["what"] for row in result["rows"]] == ["views", "step"]
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["streamed_per_s"] / row["resident_per_s"])
        assert row["mb_per_s"] > 0
    assert result["rows"][0]["growth_mib"] >= 0
    _, again = run(
        "stream.py", "--images", "600", "--steps", "3", "--store", str(store), "--only", "views"
    )
    assert len(again["rows"]) == 1
