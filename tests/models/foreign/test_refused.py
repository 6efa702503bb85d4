"""Checkpoints that are refused: hostile, damaged, of something else."""

import pickle
import random

import pytest
import torch

from dsf.models import create_encoder
from dsf.models.foreign import load_foreign


class Trap:
    """What would be executed if the file were trusted."""

    def __reduce__(self):
        return (pytest.fail, ("the file was executed",))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_nothing_is_executed(tmp_path):
    for name, content in (("trap.pth", {"state_dict": {}, "args": Trap()}), ("bare.pt", Trap())):
        torch.save(content, tmp_path / name)
        with pytest.raises(
            ValueError, match=r"would run code \(_?pytest\S+\): keep its state_dict"
        ):
            load_foreign(tmp_path / name)
    (tmp_path / "old.pth").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="old.pth"):
        load_foreign(tmp_path / "old.pth")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"bert.layer.weight": torch.zeros(1)},
            r"called bert\.layer\.\* \(1\); understood are MoCo v3",
        ),
        ({"epoch": 3}, "holds no tensors by name, nor in state_dict, model, .*; it has 'epoch'"),
        ([1, 2], "must hold tensors by name; got a list"),
        ({"method.encoder.conv1.weight": torch.zeros(1)}, "part of a run: give the run's folder"),
        (
            {"base_encoder.patch_embed.proj.0.weight": torch.zeros(48, 3, 3, 3)},
            r"neither a ResNet \(conv1.weight\) nor a vision transformer",
        ),
        (
            {"conv1.weight": torch.zeros(64, 3, 5, 5), "layer1.0.conv1.weight": torch.zeros(1)},
            "conv1 has a kernel of 5 pixels; those of 7 and 3 are known",
        ),
        (
            {"conv1.weight": torch.zeros(64, 3, 7, 7), "layer1.0.conv1.weight": torch.zeros(1)},
            r"a ResNet with \(1, 0, 0, 0\) blocks",
        ),
        (
            {"conv1.weight": torch.tensor(1.0), "layer1.0.conv1.weight": torch.zeros(1)},
            "file.pth, a checkpoint of .*: its tensors have shapes of no encoder",
        ),
        (
            {"patch_embed.proj.weight": torch.zeros(192, 3, 16, 16)}
            | {name: torch.zeros(1) for name in ("cls_token", "pos_embed", "blocks.0.norm1.bias")},
            "file.pth, a checkpoint of .*: its tensors have shapes of no encoder",
        ),
        (
            {"conv1.weight": torch.eye(3).to_sparse(), "layer1.0.conv1.weight": torch.zeros(1)},
            "conv1.weight must be a dense tensor of real numbers",
        ),
        (
            {"layer1.0.conv1.weight": torch.zeros(1, dtype=torch.complex64)},
            "layer1.0.conv1.weight must be a dense tensor of real numbers",
        ),
    ],
)
def test_what_is_not_understood(tmp_path, content, message):
    torch.save(content, tmp_path / "file.pth")
    with pytest.raises(ValueError, match=message):
        load_foreign(tmp_path / "file.pth")


def test_tensors_that_do_not_fit(tmp_path):
    whole = create_encoder("resnet-small", width=4).state_dict()
    path = tmp_path / "file.pth"
    missing = {name: tensor for name, tensor in whole.items() if name != "layer3.0.bn1.weight"}
    torch.save(missing, path)
    with pytest.raises(
        ValueError, match="checkpoint of timm or torchvision: it lacks layer3.0.bn1"
    ):
        load_foreign(path)
    torch.save(whole | {"layer1.0.se.weight": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="it has, beyond the encoder's, layer1.0.se.weight"):
        load_foreign(path)
    torch.save(whole | {"layer2.0.bn1.weight": torch.zeros(5)}, path)
    with pytest.raises(
        ValueError, match=r"bn1.weight has the shape \(5,\); the encoder's has \(8,\)"
    ):
        load_foreign(path)
    torch.save(whole, path)
    with pytest.raises(ValueError, match="options of a checkpoint are encoder, .*; got 'width'"):
        load_foreign(path, {"width": 4})
    with pytest.raises(ValueError, match="mean must be three numbers"):
        load_foreign(path, {"mean": 0.5})
    for heads in (0, -3, 2.0, "6", True):
        with pytest.raises(ValueError, match="num_heads must be an int of at least 1; got"):
            load_foreign(path, {"num_heads": heads})


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.pth is not there"):
        load_foreign(tmp_path / "nothing.pth")
    for content in (b"", b"hello world", b"PK\x03\x04 and no more"):
        (tmp_path / "other.pth").write_bytes(content)
        with pytest.raises(ValueError, match="other.pth is not a file of torch.save, or damaged"):
            load_foreign(tmp_path / "other.pth")
    (tmp_path / "text.safetensors").write_text("not this")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        load_foreign(tmp_path / "text.safetensors")


@pytest.mark.parametrize("zip_file", [True, False])
def test_damaged_bytes(tmp_path, zip_file):
    path, draw = tmp_path / "file.pth", random.Random(0)
    content = {"state_dict": {"conv1.weight": torch.zeros(4, 3, 3, 3), "epoch": torch.zeros(1)}}
    torch.save(content, path, _use_new_zipfile_serialization=zip_file)
    whole = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 5)):
            damaged[draw.randrange(len(whole))] = draw.randrange(256)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="file.pth"):  # never whole: it is no encoder
            load_foreign(path)
