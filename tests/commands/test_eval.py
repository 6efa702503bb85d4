import json
import shutil

import pytest
import tiny

from dsf.cli import main
from dsf.data.files import read_json
from dsf.experiments import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    settings = tiny.settings("epochs=1", "knn.k=20")
    return train(settings, tmp_path_factory.mktemp("runs") / "run", show=False)


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def quick(monkeypatch):
    """Protocols of seconds: the settings, not what is done with them."""
    from dsf.experiments import evaluations

    class Finetune(evaluations.Finetune):
        def within(self, budget):
            short = super().within(budget)
            return type(self)(
                **vars(short) | {"steps": 2, "batch_size": 16, "learning_rates": (0.01, 0.1)}
            )

    class LinearPaper(evaluations.LinearPaper):
        def __init__(self, labels=1.0):
            super().__init__(labels, epochs=1, learning_rate=1.0)

    class Geometry(evaluations.Geometry):
        def __init__(self, **options):
            super().__init__(views=2, corruptions=(), **options)

    for replacement in (Finetune, LinearPaper, Geometry):
        monkeypatch.setattr(evaluations, replacement.__name__, replacement)


def call(*arguments):
    return main(["eval", *map(str, arguments), "--device", "cpu"])


def rows(output):
    """The cells of a printed table."""
    lines = [line for line in output.splitlines() if line.startswith(("│", "|"))]
    return [[cell.strip() for cell in line.strip("│|").split("│")] for line in lines]


def test_prints_a_table_and_keeps_the_protocol(run, capsys):
    assert call(run, "knn", "linear") == 0
    output, errors = capsys.readouterr()
    assert errors.splitlines() == ["knn: evaluating", "linear: evaluating"]
    kept = read_json(run / "results.json")
    table = rows(output)
    assert [row[:2] for row in table] == [
        ["knn", "backbone"],
        ["", "projection"],
        ["linear", "accuracy"],
        ["", "mean per class"],
        ["", "top5"],
    ]
    assert table[0][2] == f"{100 * kept['knn']['backbone']:.2f} %"
    for name in ("knn", "linear"):
        protocol, provenance = kept[name]["protocol"], kept[name]["provenance"]
        assert protocol["checkpoint"] == "step-00000006"
        assert len(protocol["checkpoint_sha256"]) == 64
        assert protocol["data"]["name"] == "embedded"
        assert protocol["data"]["limit"] == 96
        assert len(protocol["data"]["content"]["test"]["images"]) == 64
        assert protocol["seed"] == 0
        assert protocol["encoder"]["name"] == "resnet-small"
        assert provenance["device"] == "cpu"
        assert provenance["seconds"] > 0
        assert "torch" in provenance["packages"]
    assert len(kept["linear"]["details"]["confusion"]) == 10
    assert len(kept["knn"]["details"]["projection"]["per_class"]) == 10


def test_again_only_what_is_missing(run, capsys):
    assert call(run, "knn") == 0
    first = read_json(run / "results.json")["knn"]
    capsys.readouterr()
    assert call(run, "knn", "linear") == 0
    output, errors = capsys.readouterr()
    assert errors.splitlines() == [
        "knn: kept, as it is there already",
        "linear: evaluating",
    ]
    assert rows(output)[0][0] == "knn"
    assert read_json(run / "results.json")["knn"] == first
    assert call(run, "knn", "--again") == 0
    assert capsys.readouterr().err == "knn: evaluating\n"
    again = read_json(run / "results.json")["knn"]
    assert again["provenance"]["seconds"] != first["provenance"]["seconds"]
    del again["provenance"], first["provenance"]
    assert again == first


def test_another_checkpoint_or_other_settings_are_missing(run, capsys):
    assert call(run, "knn") == 0
    assert call(run, "knn", "--k", 7) == 0
    assert call(run, "knn", "--seed", 5) == 0
    kept = read_json(run / "results.json")
    assert {"knn", "knn k=7", "knn seed=5"} <= kept.keys()
    assert kept["knn"]["backbone"] != kept["knn k=7"]["backbone"]
    # As if the run had gone on and ended elsewhere.
    kept["knn"]["protocol"]["checkpoint_sha256"] = "0" * 64
    (run / "results.json").write_text(json.dumps(kept))
    capsys.readouterr()
    assert call(run, "knn", "--k", 7) == 0
    assert call(run, "knn") == 0
    assert capsys.readouterr().err == "knn k=7: kept, as it is there already\nknn: evaluating\n"


@pytest.mark.usefixtures("quick")
def test_all_that_a_run_can_be_asked(run, capsys):
    assert call(run, "linear", "--labels", 0.1) == 0
    assert call(run, "linear", "--linear", "paper") == 0
    assert call(run, "linear", "--linear", "paper", "--labels", 0.1) == 0
    assert call(run, "finetune", "--budget", 0.01) == 0
    assert call(run, "finetune", "--budget", 0.01, "--random") == 0
    assert call(run, "geometry", "--size", 16) == 0
    kept = read_json(run / "results.json")
    assert kept.keys() == {
        "training",
        "linear labels=0.1",
        "linear-paper",
        "linear-paper labels=0.1",
        "finetune budget=0.01",
        "untrained-finetune budget=0.01",
        "geometry size=16",
    }
    assert kept["linear labels=0.1"]["details"]["labels_used"] < 30
    trained, fresh = kept["finetune budget=0.01"], kept["untrained-finetune budget=0.01"]
    assert fresh["protocol"]["checkpoint"] is None
    assert fresh["protocol"]["weights"] == "random, seed 0"
    assert trained["protocol"]["budget"] == 0.01
    assert trained["details"]["chosen"].keys() == {"learning_rate", "weight_decay"}
    assert "projection_effective_rank" in kept["geometry size=16"]
    output = capsys.readouterr().out
    assert "effective rank" in output


@pytest.mark.usefixtures("quick")
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
    name = "untrained-knn@embedded size=16"
    assert capsys.readouterr().err == f"{name}: kept, as it is there already\n"


def test_an_encoder_with_options_and_a_folder_of_its_own(tmp_path):
    arguments = ["resnet-small", "width=4", "--data", "embedded", "-o", tmp_path / "here"]
    assert call(*arguments) == 0
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet-small"], "data: which data set should resnet-small be evaluated on"),
        (["resnet-small", "--data", "cifar11"], "data set must be one of "),
        (["resnet-small", "--data", "embedded", "--pretrained"], "pretrained: only encoders of"),
        (["resnet-small", "depth=3", "--data", "embedded"], "does not take these options"),
        (["timm/resnet1", "--data", "embedded"], "timm has no model 'resnet1'"),
        (["resnet-small", "--data", "embedded", "--size", "2"], "size must be in [4, 1024]"),
        (["nowhere"], "nowhere is not a run: there is no such folder"),
        (["RUN", "--pretrained"], "pretrained: a run has its own encoder"),
        (["RUN", "width=4"], "options: a run has its own encoder"),
        (["RUN", "--k", "97"], "k must be in [1, 96], the number of training images in the bank"),
        (["RUN", "--device", "tpu"], "device: "),
    ],
)
def test_errors(run, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    words = [str(run) if word == "RUN" else word for word in arguments]
    assert main(["eval", *words]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--labels", "0"], "--labels: must be a share in (0, 1]; got '0'"),
        (["--budget", "2"], "--budget: must be a share in (0, 1]; got '2'"),
        (["--k", "0"], "--k: must be a whole number >= 1; got '0'"),
        (["--linear", "slow"], "--linear: invalid choice: 'slow'"),
    ],
)
def test_wrong_calls(capsys, arguments, message):
    assert main(["eval", "run", *arguments]) == 2
    assert message in capsys.readouterr().err


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
    assert call(folder, "width=4", "--data", "embedded") == 1


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
    assert call(*("file.pth" if word == "FILE" else word for word in arguments)) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_data_without_a_test_split(tmp_path, monkeypatch, capsys):
    import miniature

    from dsf.data import prepare

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    monkeypatch.chdir(tmp_path)
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', {'a': 4, 'b': 4})}"
    prepare(name, size=16)
    assert call("resnet-small", "--data", name) == 1
    errors = capsys.readouterr().err
    assert "evaluation needs the splits train and test" in errors
    pictures = tmp_path / "pictures"
    assert f"put images into {pictures}/train/CLASS and {pictures}/test/CLASS and" in errors
    assert errors.endswith("or take knn --leave-one-out, which uses training images only\n")
    assert call("resnet-small", "knn", "geometry", "--leave-one-out", "--data", name) == 1
    capsys.readouterr()
    assert call("resnet-small", "knn", "--leave-one-out", "--data", name, "--k", 3) == 0
    (kept,) = read_json(tmp_path / "runs" / "resnet-small" / "results.json").values()
    assert kept["protocol"]["data"]["train_samples"] == 8
    assert kept["protocol"]["data"]["test_samples"] == 0
    assert kept["protocol"]["data"]["content"].keys() == {"train"}
    assert sum(map(sum, kept["details"]["backbone"]["confusion"])) == 8
    flat = f"folder:{miniature.picture_folder(tmp_path / 'flat', {'train': 4, 'test': 4})}"
    prepare(flat, size=16)
    assert call("resnet-small", "--data", flat) == 1
    assert "evaluation needs labels" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_another_data_set_with_squashed_images(run, tmp_path, monkeypatch, capsys):
    import miniature

    from dsf.data import prepare

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    counts = {"train/a": 6, "train/b": 6, "test/a": 4, "test/b": 4}
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', counts)}"
    prepare(name, size=40)
    assert call(run, "knn", "--data", name, "--k", 99) == 1
    prepare(name, size=20)  # several sizes: it must be said which
    assert call(run, "knn", "--data", name, "--k", 3) == 1
    assert "is prepared in the sizes" in capsys.readouterr().err
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


def test_corruption(run, tmp_path, capsys):
    assert call(run, "corruption", "--published", tmp_path / "none") == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert "corruption published" not in read_json(run / "results.json")


@pytest.mark.parametrize(
    ("words", "option", "owner"),
    [
        (["--labels", "0.1"], "--labels", "linear"),
        (["geometry", "--k", "3"], "--k", "knn"),
        (["linear", "--leave-one-out"], "--leave-one-out", "knn"),
        (["knn", "--linear", "paper"], "--linear", "linear or corruption"),
        (["knn", "linear", "--budget", "1"], "--budget", "finetune"),
        (["linear", "--severities", "1"], "--severities", "corruption"),
        (["geometry", "--published", "C"], "--published", "corruption"),
    ],
)
def test_options_of_evaluations_that_are_not_asked_for(run, capsys, words, option, owner):
    assert call(run, *words) == 2
    assert f"dsf: {option} goes with the evaluation {owner}; got " in capsys.readouterr().err
    assert read_json(run / "results.json").keys() == {"training"}


def test_a_name_that_is_nearly_right(run, capsys):
    assert call(run, "kn") == 1
    assert capsys.readouterr().err.endswith("; got 'kn': did you mean knn?\n")
    assert call(run, "accuracy") == 1
    assert capsys.readouterr().err.endswith("; got 'accuracy'\n")


def test_what_is_missing_is_found_before_anything_is_computed(run, monkeypatch, capsys):
    from dsf.data.corruptions import textures

    monkeypatch.setattr(textures, "_PACKAGE", "nowhere_to_be_found")
    assert call(run, "knn", "corruption") == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert "pip install 'dsf-ssl[corruptions]'" in errors
    assert read_json(run / "results.json").keys() == {"training"}
    assert call(run, "knn", "knn", "--k", 9999) == 1
    assert capsys.readouterr().err.startswith("dsf: k must be in [1, 96]")


def test_what_was_done_is_shown_when_the_next_fails(run, monkeypatch, capsys):
    from dsf.evaluation import LinearFast

    def fail(self, subject, seed=0):
        raise ValueError("no memory left")

    monkeypatch.setattr(LinearFast, "evaluate", fail)
    assert call(run, "knn", "linear", "geometry") == 1
    output, errors = capsys.readouterr()
    assert [row[0] for row in rows(output)] == ["knn", ""]
    assert errors.splitlines()[-1] == "dsf: no memory left"
    assert read_json(run / "results.json").keys() == {"training", "knn"}


def test_a_run_that_is_not_finished(run, capsys):
    """As if it had been stopped after its one epoch of two."""
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 1\n", "epochs: 2\n", 1))
    assert call(run, "knn") == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(f"note: {run} is at step 6 of 12, not at its end; ")
    assert first.endswith(f"`dsf train -o {run} --resume` goes on")
    assert call(run, "knn", "--random") == 0  # which is of no step
    assert "note: " not in capsys.readouterr().err


@pytest.mark.parametrize("classes", [5, 6])
def test_the_first_five_of_five_classes_are_not_shown(classes):
    from dsf.experiments.evaluations import shown_numbers

    entry = {"protocol": {"data": {"classes": classes}}, "accuracy": 0.5, "top5": 1.0}
    five = [("top5", "100.00 %")] if classes == 6 else []
    assert shown_numbers(entry) == [("accuracy", "50.00 %"), *five]


@pytest.mark.parametrize("text", ["0", "1,1", "6", "", "1,,2", "one"])
def test_wrong_severities(run, capsys, text):
    assert call(run, "corruption", "--severities", text) == 2
    assert "must be some of 1,2,3,4,5, each once" in capsys.readouterr().err


def test_severities_are_part_of_the_name(run, monkeypatch, capsys):
    monkeypatch.setattr("dsf.data.corruptions.CORRUPTIONS", ("contrast",))
    assert call(run, "corruption", "--severities", "1,3") == 0
    kept = read_json(run / "results.json")["corruption severities=1,3"]
    assert kept["protocol"]["severities"] == [1, 3]
    assert len(kept["details"]["errors"]["contrast"]) == 2


def test_a_package_that_is_not_there(run, monkeypatch, capsys):
    from dsf.evaluation import KNN

    def missing(self, subject, seed=0):
        raise ModuleNotFoundError("frost needs textures: install imagecorruptions")

    monkeypatch.setattr(KNN, "evaluate", missing)
    assert call(run, "knn") == 1
    assert capsys.readouterr().err.endswith("dsf: frost needs textures: install imagecorruptions\n")
