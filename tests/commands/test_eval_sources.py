"""What ``dsf eval`` takes besides a run on its own data: encoders, checkpoints, data sets."""

import pytest

from dsf.cli import main
from dsf.files import read_json


def call(*arguments):
    return main(["eval", *map(str, arguments), "--device", "cpu"])


@pytest.mark.usefixtures("quick")
def test_weights_that_cannot_be_fetched(tmp_path, monkeypatch, capsys):
    import timm

    def create_model(name, **options):
        raise FileNotFoundError("no such file on the Hub\nand more about it")

    monkeypatch.setattr(timm, "create_model", create_model)
    assert call("timm/resnet10t", "--data", "embedded", "--pretrained", "-o", tmp_path) == 1
    message = "dsf: the weights of timm/resnet10t are not on this machine and could not be fetched"
    assert capsys.readouterr().err == f"{message}: no such file on the Hub\n"


def test_an_encoder_of_timm(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["timm/resnet10t", "--data", "embedded", "--size", 16]
    assert call(*arguments, "knn", "linear") == 0
    kept = read_json(tmp_path / "runs" / "timm-resnet10t" / "results.json")
    names = {"untrained-knn@embedded size=16", "untrained-linear@embedded size=16"}
    assert kept.keys() == names
    protocol = kept["untrained-knn@embedded size=16"]["protocol"]
    assert protocol["encoder"] == {"name": "timm/resnet10t", "options": {}}
    assert protocol["weights"] == "random, seed 0"
    assert protocol["data"]["train_samples"] == 5000
    assert (protocol["image_size"], protocol["k"]) == (16, 200)
    assert kept["untrained-linear@embedded size=16"]["accuracy"] > 0.15
    capsys.readouterr()
    assert call(*arguments, "knn") == 0
    kept_already = "untrained-knn@embedded size=16: kept, as it is there already\n"
    note = "note: the weights of timm/resnet10t are random; --pretrained takes those of its library"
    assert capsys.readouterr().err == f"{note}\n{kept_already}"
    assert call(*arguments, "knn", "--random") == 0
    assert capsys.readouterr().err == kept_already


def test_an_encoder_with_options_and_a_folder_of_its_own(tmp_path, capsys):
    arguments = ["resnet-small", "width=4", "--data", "embedded", "-o", tmp_path / "here"]
    assert call(*arguments) == 0
    assert "note: the weights of resnet-small are random\n" in capsys.readouterr().err
    assert call(*arguments, "--seed", 3) == 0
    kept = read_json(tmp_path / "here" / "results.json")
    first, other = (kept[f"untrained-knn@embedded width=4{seed}"] for seed in ("", " seed=3"))
    assert first["protocol"]["encoder"]["options"] == {"width": 4}
    assert first["details"]["backbone"]["dimension"] == 32
    assert other["protocol"]["weights"] == "random, seed 3"
    assert other["backbone"] != first["backbone"]


def test_an_encoder_with_weights(tmp_path, monkeypatch):
    """What timm would download is given to it, since tests have no network."""
    import timm
    import torch

    created = timm.create_model

    def create_model(name, pretrained=False, **options):
        model = created(name, **options)
        if pretrained:
            with torch.no_grad():
                model.conv1.weight.zero_()
        return model

    monkeypatch.setattr(timm, "create_model", create_model)
    arguments = ["timm/resnet18", "--data", "embedded", "--size", 8]
    assert call(*arguments, "--pretrained", "-o", tmp_path) == 0
    assert call(*arguments, "-o", tmp_path) == 0
    kept = read_json(tmp_path / "results.json")
    assert kept["untrained-knn@embedded size=8"]["backbone"] > 0.1
    found = read_json(tmp_path / "results.json")["knn@embedded size=8"]
    assert found["protocol"]["weights"] == "pretrained"
    assert found["backbone"] == 0.1  # nothing passes the first layer: all features are equal


def test_a_checkpoint_of_others(tmp_path, monkeypatch, capsys):
    """The same numbers as the encoder that is in it, with the normalisation that was asked for."""
    import torch

    from dsf.experiments import evaluate
    from dsf.models import create_encoder

    monkeypatch.chdir(tmp_path)
    encoder = create_encoder("resnet-small", width=4)
    state = {f"module.encoder_q.{name}": tensor for name, tensor in encoder.state_dict().items()}
    state["module.encoder_q.fc.0.weight"] = torch.zeros(8, 32)
    torch.save({"epoch": 1, "state_dict": state, "optimizer": {"state": {}}}, "moco.pth.tar")
    assert call("moco.pth.tar", "knn", "mean=[0.5,0.5,0.5]", "--data", "embedded") == 0
    kept = read_json(tmp_path / "runs" / "moco" / "results.json")
    found = kept["knn@embedded mean=[0.5, 0.5, 0.5]"]
    protocol = found["protocol"]
    assert protocol["encoder"] == {"name": "resnet-small", "options": {"width": 4}}
    assert protocol["weights"] == "a checkpoint of MoCo"
    assert protocol["checkpoint"] == "moco.pth.tar"
    assert len(protocol["checkpoint_sha256"]) == 64
    assert protocol["normalisation"]["mean"] == [0.5, 0.5, 0.5]
    assert protocol["image_size"] == 32
    encoder.pretrained_cfg = protocol["normalisation"]
    direct = evaluate(encoder, ["knn"], "cpu", data="embedded", folder=tmp_path / "direct")
    assert direct["knn@embedded"]["backbone"] == found["backbone"]
    capsys.readouterr()
    assert call("moco.pth.tar", "mean=[0.5,0.5,0.5]", "--data", "embedded") == 0
    assert "kept, as it is there already" in capsys.readouterr().err


def test_an_exported_folder(run, tmp_path, monkeypatch):
    """The same number as the run's own encoder, with the normalisation of its views."""
    from dsf.data.augment import RECIPES
    from dsf.experiments import Choices, evaluate, load_run
    from dsf.export import export_run

    monkeypatch.chdir(tmp_path)
    folder, _ = export_run(run, "huggingface", tmp_path / "mine")
    assert call(folder, "knn", "--k", 20, "--data", "embedded", "--size", 16) == 0
    kept = read_json(tmp_path / "runs" / "mine" / "results.json")
    found = kept["knn@embedded k=20 size=16"]
    assert found["protocol"]["weights"] == "exported"
    assert found["protocol"]["encoder"]["name"] == "resnet-small"
    encoder = load_run(run, "cpu")[1].encoder
    encoder.pretrained_cfg = {"mean": RECIPES["cifar"].mean, "std": RECIPES["cifar"].std}
    direct = evaluate(
        encoder, ["knn"], "cpu", data="embedded", size=16, choices=Choices(k=20), folder="direct"
    )
    assert direct["knn@embedded k=20 size=16"]["backbone"] == found["backbone"]
    file = folder / "model.safetensors"  # whose folder says what it is
    assert call(file, "--k", 20, "--data", "embedded", "--size", 16) == 0
    again = read_json(tmp_path / "runs" / "mine" / "results.json")
    assert again == kept
    assert call(folder, "width=4", "--data", "embedded") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.pth", "--data", "embedded"], "nothing.pth is not there"),
        (["FILE", "--data", "embedded"], "holds no encoder that is known. Its tensors are called"),
        (["FILE"], "data: which data set should "),
        (["FILE", "--data", "embedded", "--random"], "is weights; name the encoder, such as"),
        (["FILE", "--data", "embedded", "--pretrained"], "has its own weights"),
    ],
)
def test_errors_of_checkpoints(tmp_path, monkeypatch, capsys, arguments, message):
    import torch

    monkeypatch.chdir(tmp_path)
    torch.save({"bert.weight": torch.zeros(2)}, "file.pth")
    assert call(*("file.pth" if word == "FILE" else word for word in arguments)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_data_without_a_test_split(tmp_path, monkeypatch, capsys):
    import miniature

    from dsf.data import prepare

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    monkeypatch.chdir(tmp_path)
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', {'a': 4, 'b': 4})}"
    prepare(name, size=16)
    assert call("resnet-small", "--data", name) == 2
    errors = capsys.readouterr().err
    assert "evaluation needs the splits train and test" in errors
    pictures = tmp_path / "pictures"
    assert f"put images into {pictures}/train/CLASS and {pictures}/test/CLASS and" in errors
    assert errors.endswith("or take knn --leave-one-out, which uses training images only\n")
    assert call("resnet-small", "knn", "geometry", "--leave-one-out", "--data", name) == 2
    capsys.readouterr()
    assert call("resnet-small", "knn", "--leave-one-out", "--data", name, "--k", 3) == 0
    (kept,) = read_json(tmp_path / "runs" / "resnet-small" / "results.json").values()
    assert kept["protocol"]["data"]["train_samples"] == 8
    assert kept["protocol"]["data"]["test_samples"] == 0
    assert kept["protocol"]["data"]["content"].keys() == {"train"}
    assert sum(map(sum, kept["details"]["backbone"]["confusion"])) == 8
    flat = f"folder:{miniature.picture_folder(tmp_path / 'flat', {'train': 4, 'test': 4})}"
    prepare(flat, size=16)
    assert call("resnet-small", "--data", flat) == 2
    assert "evaluation needs labels" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_another_data_set_with_squashed_images(run, tmp_path, monkeypatch, capsys):
    import miniature

    from dsf.data import prepare

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    counts = {"train/a": 6, "train/b": 6, "test/a": 4, "test/b": 4}
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', counts)}"
    prepare(name, size=40)
    assert call(run, "knn", "--data", name, "--k", 99) == 2
    prepare(name, size=20)  # several sizes: it must be said which
    assert call(run, "knn", "--data", name, "--k", 3) == 2
    assert f"sizes 20, 40: take --data {name}:20, the one prepared" in capsys.readouterr().err
    name += ":40"
    assert call(run, "knn", "linear", "finetune", "--data", name, "--k", 3, "--budget", 0.5) == 0
    kept = read_json(run / "results.json")
    assert {f"knn@{name} k=3", f"linear@{name}", f"finetune@{name} budget=0.5"} < kept.keys()
    protocol = kept[f"linear@{name}"]["protocol"]
    assert protocol["test_images"] == "the central square of 7/8 of the shorter side"
    assert protocol["image_size"] == 8  # of the run's views
    assert protocol["data"]["metric"] == "top-1"
    assert protocol["data"]["name"] == name.removesuffix(":40")
    said = capsys.readouterr().err
    assert "finetune: 4 of 4 settings, learning rate 0.1, weight decay 3.162e-05: " in said
    # Stored at five times the size of the views: geometry makes them all the same.
    assert call(run, "geometry", "--data", name) == 0
