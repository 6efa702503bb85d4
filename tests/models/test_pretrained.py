import json

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file

import dsf
from dsf.models import create_encoder, from_pretrained


@pytest.fixture
def folder(tmp_path):
    encoder = create_encoder("resnet-small", width=4)
    save_file(encoder.state_dict(), tmp_path / "model.safetensors")
    section = {
        "format": 1,
        "encoder": {"name": "resnet-small", "options": {"width": 4}},
        "image_size": 32,
        "mean": [0.4, 0.5, 0.6],
        "std": [0.1, 0.2, 0.3],
    }
    (tmp_path / "config.json").write_text(json.dumps({"dsf": section}))
    return tmp_path


def change(folder, **values):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({"dsf": config["dsf"] | values}))


def test_a_folder(folder):
    encoder = dsf.from_pretrained(str(folder))
    assert encoder(torch.zeros(1, 3, 32, 32)).shape == (1, 32)
    assert encoder.pretrained_cfg["mean"] == (0.4, 0.5, 0.6)
    assert not encoder.training


def test_the_hub(folder, monkeypatch):
    asked = []

    def snapshot_download(name, **options):
        asked.append((name, options))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert from_pretrained("me/mine", revision="v1").num_features == 32
    parts = ["model.safetensors.index.json", "model-*.safetensors"]
    wanted = ["config.json", "model.safetensors", *parts]
    assert asked == [("me/mine", {"revision": "v1", "allow_patterns": wanted})]


def test_the_hub_out_of_reach(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match="me/mine is no folder here, and the Hub did not"):
        from_pretrained("me/mine")


def test_errors(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="is neither a folder nor user/name on the Hub"):
        from_pretrained("a/b/c")
    with pytest.raises(ValueError, match="revision: .* is a folder"):
        from_pretrained(folder, revision="main")
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match=r"holds no exported encoder: it has no config"):
        from_pretrained(tmp_path / "none")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format": 2}, "dsf.format must be 1; got 2. Use the version of dsf that wrote it"),
        (
            {"encoder": {"name": "timm/resnet18", "options": {"pretrained": True}}},
            "the encoder must not take the option 'pretrained'",
        ),
        (
            {"encoder": {"name": "resnet-small", "options": {"width": 8}}},
            "model.safetensors does not belong to its config.json",
        ),
        ({"encoder": {"name": "resnet19", "options": {}}}, "encoder must be one of"),
        ({"encoder": {"name": "timm/hf-hub:a/b", "options": {}}}, "must not be fetched; got 'timm"),
        ({"encoder": {"name": "resnet-small"}}, "dsf must have an encoder with name and options"),
        ({"encoder": "resnet-small"}, "dsf must have an encoder with name and options"),
        ({"image_size": None}, "dsf must have .* image_size, mean and std"),
        ({"mean": 3}, "dsf must have .* image_size, mean and std"),
        ({"std": [1.0]}, "dsf must have .* image_size, mean and std"),
        ({"std": "abc"}, "dsf must have .* image_size, mean and std"),
        (
            {"encoder": {"name": "resnet-small", "options": ["width"]}},
            "an encoder with name and op",
        ),
        ({"encoder": {"name": "resnet-small", "options": "width"}}, "an encoder with name and op"),
        ({"files": None}, "dsf.files must hold checksums by the names of files; got None"),
    ],
)
def test_a_wrong_config(folder, values, message):
    change(folder, **values)
    with pytest.raises(ValueError, match=message):
        from_pretrained(folder)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (["model.safetensors"], "names no files: weight_map is missing, empty or no mapping"),
        (None, "names no files: weight_map is missing, empty or no mapping"),
        ({"conv1.weight": 1}, "lacks 1, a part of its weights"),
        ({"conv1.weight": "../model.safetensors"}, "must name files of its own folder; got"),
    ],
)
def test_a_wrong_index(folder, places, message):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        from_pretrained(folder)


def test_damaged_files(folder):
    (folder / "model.safetensors").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(ValueError, match="model.safetensors is not a safetensors file"):
        from_pretrained(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="was not written by dsf: it has no 'dsf'"):
        from_pretrained(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="must hold a JSON object; got list"):
        from_pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        from_pretrained(folder)


def test_unknown_names_of_the_package():
    with pytest.raises(AttributeError, match="has no attribute 'from_pretrain'"):
        dsf.from_pretrain  # noqa: B018
