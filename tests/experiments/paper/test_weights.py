import json

import pytest
import tiny
import torch
from safetensors.torch import load_file

from dsf.cli import main
from dsf.experiments import load_run, train
from dsf.experiments.paper import weights
from dsf.models import from_pretrained


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    settings = tiny.settings("epochs=1", "encoder.name=resnet18", "encoder.options={stem: cifar}")
    return train(settings, folder / "head" / "dsf", show=False)


def test_there_and_back(run, tmp_path):
    about, index, *parts = weights.export_weights(run, tmp_path)
    assert [path.name for path in (about, index, *parts)] == [
        "config.json",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert all(path.stat().st_size < 16 << 20 for path in (about, *parts))
    assert sum(path.stat().st_size for path in parts) < 25_000_000
    assert {value.dtype for value in load_file(parts[0]).values() if value.dim() > 1} == {
        torch.float16
    }
    encoder = from_pretrained(tmp_path)
    _, method, _ = load_run(run, "cpu")
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, expected = encoder(images), method.encoder.eval()(images)
    assert found.dtype is torch.float32
    cosine = torch.nn.functional.cosine_similarity(found, expected)
    assert cosine.min() > 0.9999


def test_they_are_evaluated_as_any_encoder(run, tmp_path, monkeypatch):
    weights.export_weights(run, tmp_path / "dsf")
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "dsf", "knn", "--data", "embedded"]) == 0
    found = json.loads((tmp_path / "runs/dsf/results.json").read_text())
    (entry,) = found.values()
    assert entry["protocol"]["weights"] == "exported"


def test_damaged_files(run, tmp_path):
    _, index, first, _ = weights.export_weights(run, tmp_path)
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    with pytest.raises(ValueError, match="model-00001-of-00002.safetensors is damaged"):
        from_pretrained(tmp_path)
    first.unlink()
    with pytest.raises(FileNotFoundError, match="lacks model-00001-of-00002.safetensors"):
        from_pretrained(tmp_path)
    index.write_text(json.dumps({"weight_map": {"conv1.weight": "../other.safetensors"}}))
    with pytest.raises(ValueError, match="must name files of its own folder; got '../other"):
        from_pretrained(tmp_path)
    index.write_text(json.dumps({"weight_map": {}}))
    with pytest.raises(ValueError, match="index.json names no files"):
        from_pretrained(tmp_path)
    index.unlink()
    with pytest.raises(FileNotFoundError, match="it has no model.safetensors"):
        from_pretrained(tmp_path)


def test_the_command(run, tmp_path, capsys):
    runs = run.parent.parent
    options = ["--runs", str(runs), "-o", str(tmp_path)]
    assert main(["reproduce", "head/dsf", "--weights", *options]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/head/dsf/config.json  ")
    assert main(["reproduce", "head/moco", "--weights", *options]) == 2
    assert (
        capsys.readouterr().err == f"dsf: {runs}/head/moco is not a run: there is no such folder\n"
    )
