import pytest
import tiny
import torch
from safetensors.torch import load_file

from dsf.cli import main
from dsf.experiments import load_run, train
from dsf.experiments.paper import weights


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    settings = tiny.settings("epochs=1", "encoder.name=resnet18", "encoder.options={stem: cifar}")
    return train(settings, folder / "head" / "dsf", show=False)


def test_there_and_back(run, tmp_path):
    about, *parts = weights.export_weights(run, tmp_path)
    assert [path.name for path in parts] == [
        "encoder-1-of-2.safetensors",
        "encoder-2-of-2.safetensors",
    ]
    assert all(path.stat().st_size < 16 << 20 for path in (about, *parts))
    assert sum(path.stat().st_size for path in parts) < 25_000_000
    assert {value.dtype for value in load_file(parts[0]).values() if value.dim() > 1} == {
        torch.float16
    }
    encoder = weights.load_weights(tmp_path)
    _, method, _ = load_run(run, "cpu")
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, expected = encoder(images), method.encoder.eval()(images)
    assert found.dtype is torch.float32
    cosine = torch.nn.functional.cosine_similarity(found, expected)
    assert cosine.min() > 0.9999


def test_damaged_files(run, tmp_path):
    about, first, _ = weights.export_weights(run, tmp_path)
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    with pytest.raises(ValueError, match="encoder-1-of-2.safetensors is damaged"):
        weights.load_weights(tmp_path)
    about.write_text("{}")
    with pytest.raises(ValueError, match="format must be 1; got None"):
        weights.load_weights(tmp_path)


def test_the_command(run, tmp_path, capsys):
    runs = run.parent.parent
    options = ["--runs", str(runs), "-o", str(tmp_path)]
    assert main(["reproduce", "head/dsf", "--weights", *options]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/head/dsf/encoder.json  ")
    assert main(["reproduce", "head/moco", "--weights", *options]) == 2
    assert (
        capsys.readouterr().err == f"dsf: {runs}/head/moco is not a run: there is no such folder\n"
    )
