import json

import pytest

from dsf.cli import main
from dsf.files import read_json


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
        (["resnt18"], "resnt18 is neither a run nor an encoder: did you mean resnet18?"),
        (["RUN", "--pretrained"], "pretrained: a run has its own encoder"),
        (["RUN", "width=4"], "options: a run has its own encoder"),
        (["RUN", "knn", "k=9"], "k=9: did you mean --k 9?"),
        (["RUN", "knn.k=9"], "knn.k=9: did you mean --k 9?"),
        (["RUN", "--k", "97"], "k must be in [1, 96], the number of training images in the bank"),
        (["RUN", "--device", "tpu"], "device: "),
    ],
)
def test_errors(run, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    words = [str(run) if word == "RUN" else word for word in arguments]
    assert main(["eval", *words]) == 2
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


def test_corruption(run, tmp_path, capsys):
    assert call(run, "corruption", "--published", tmp_path / "none") == 2
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
    assert call(run, "kn") == 2
    assert capsys.readouterr().err.endswith("; got 'kn': did you mean knn?\n")
    assert call(run, "accuracy") == 2
    assert capsys.readouterr().err.endswith("; got 'accuracy'\n")


def test_what_is_missing_is_found_before_anything_is_computed(run, monkeypatch, capsys):
    from dsf.data.corruptions import textures

    monkeypatch.setattr(textures, "_PACKAGE", "nowhere_to_be_found")
    assert call(run, "knn", "corruption") == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert "pip install 'dsf-ssl[corruptions]'" in errors
    assert read_json(run / "results.json").keys() == {"training"}
    assert call(run, "knn", "knn", "--k", 9999) == 2
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
