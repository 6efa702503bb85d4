import errno

import numpy as np
import pytest
import tiny
import torch

from dsf.cli import main
from dsf.data import Split, load
from dsf.evaluation import Finetune, extract, knn
from dsf.experiments import Choices, evaluate, load_recipe, load_run, train
from dsf.files import read_json, write_json
from dsf.random import some

MONITOR = ["knn.every=1", "knn.k=20"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tiny.settings(*MONITOR), tmp_path_factory.mktemp("runs") / "run", show=False)


def test_the_monitor_watches_before_every_epoch_and_at_the_end(run, tmp_path):
    lines = tiny.lines(run, "knn")
    assert [(line["epoch"], line["step"]) for line in lines] == [(0, 0), (1, 6), (2, 12)]
    for line in lines:
        assert 0 < line["backbone"] < 1
        assert 0 < line["projection"] < 1
    seldom = train(tiny.settings("knn.every=5", "knn.k=20"), tmp_path / "run", show=False)
    assert [line["epoch"] for line in tiny.lines(seldom, "knn")] == [0, 2]


def test_watching_changes_nothing(run, tmp_path):
    unwatched = train(tiny.settings(), tmp_path / "run", show=False)
    watched, other = tiny.tensors(run), tiny.tensors(unwatched)
    assert [name for name in watched if not watched[name].equal(other[name])] == []
    assert tiny.lines(run, "step") == tiny.lines(unwatched, "step")


def test_a_monitored_run_resumes_exactly(run, tmp_path):
    settings = tiny.settings(*MONITOR, "checkpoint.steps=5", "checkpoint.keep=3")
    train(settings, tmp_path / "run", show=False)
    (tmp_path / "run" / "checkpoints" / "step-00000012" / "state.json").unlink()
    train(settings, tmp_path / "run", resume=True, show=False)
    assert tiny.same(run, tmp_path / "run")


def test_evaluate_agrees_with_the_monitor(run, capsys):
    assert main(["eval", str(run), "knn", "linear"]) == 0
    output = capsys.readouterr().out.splitlines()
    results = read_json(run / "results.json")
    last = tiny.lines(run, "knn")[-1]
    assert results["knn"]["backbone"] == last["backbone"]
    assert results["knn"]["projection"] == last["projection"]
    assert results["knn"]["protocol"]["k"] == 20
    assert results["linear"]["protocol"]["checkpoint"] == "step-00000012"
    assert 0.1 < results["linear"]["accuracy"] < 1
    assert "training" in results
    shown = [line for line in output if "%" in line]
    assert f"{100 * last['backbone']:.2f} %" in shown[0]
    assert shown[0].split()[1] == "knn"
    assert f"{100 * results['linear']['accuracy']:.2f} %" in shown[2]


def test_by_hand(run):
    _, method, path = load_run(run, "cpu")
    assert path.name == "step-00000012"
    train_split, test_split = load("embedded", "train"), load("embedded", "test")
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    rows = some(5000, 96)
    features = [
        extract(method.encoder, images, mean, std)
        for images in (train_split.images()[rows], test_split.images())
    ]
    found = knn(features[0], train_split.labels()[rows], features[1], test_split.labels(), k=20)
    expected = evaluate(run, ["knn"], "cpu")["knn"]["backbone"]
    assert found.accuracy == expected


def test_the_monitor_takes_the_images_that_are_there(tmp_path, monkeypatch):
    """A data set that fills half of a GPU cannot be there twice."""
    loaded = []
    original = Split.images

    def images(self, *device):
        loaded.extend([self.name] if device else [])  # without one for a checksum only
        return original(self, *device)

    monkeypatch.setattr(Split, "images", images)
    train(tiny.settings(*MONITOR, "epochs=1"), tmp_path / "run", show=False)
    assert sorted(loaded) == ["test", "train"]


def test_results_that_are_damaged_stop_it_before_the_work(run, tmp_path, capsys):
    (tmp_path / "results.json").write_text('{"knn": ')
    begun = []
    for again in (True, False):
        with pytest.raises(ValueError, match="results.json is not JSON"):
            evaluate(
                run, ["knn"], "cpu", folder=tmp_path, again=again, begin=lambda: begun.append(1)
            )
    assert not begun


@pytest.mark.parametrize("local", [0, 2])
def test_a_transformer_sees_the_size_of_its_views(tmp_path, local):
    encoder = "encoder.options={depth: 1, embed_dim: 48, num_heads: 2}"
    size = ["views.size=48", f"views.local={{count: {local}, size: 16}}"]
    settings = tiny.settings("epochs=1", "encoder.name=mocov3-vit-small", encoder, *size)
    folder = train(settings, tmp_path / "run", show=False)
    evaluate(folder, ["knn"], "cpu", choices=Choices(k=20))
    assert read_json(folder / "results.json")["knn k=20"]["protocol"]["image_size"] == 48


def test_another_size_of_images(tmp_path):
    settings = tiny.settings(*MONITOR, "epochs=1", "data.evaluation_size=16")
    folder = train(settings, tmp_path / "run", show=False)
    assert len(tiny.lines(folder, "knn")) == 2


def test_fewer_images_than_neighbours(tmp_path, capsys):
    settings = tiny.settings("epochs=1", "knn.every=1", "data.limit=32")
    folder = train(settings, tmp_path / "run", show=False)
    assert [line["k"] for line in tiny.lines(folder, "knn")] == [32, 32]  # the monitor says so
    assert main(["eval", str(folder), "--device", "cpu"]) == 0
    note = "knn: k=32, as there are only so many training images\n"
    assert capsys.readouterr().err == note + "knn: evaluating\n"
    protocol = read_json(folder / "results.json")["knn"]["protocol"]
    assert (protocol["k"], protocol["lowered_from"]) == (32, 200)
    left_out = evaluate(folder, ["knn"], "cpu", choices=Choices(leave_one_out=True))
    assert left_out["knn leave_one_out=True"]["protocol"]["k"] == 31


def test_neighbours_that_were_asked_for_are_not_lowered(tmp_path, capsys):
    folder = train(tiny.settings("epochs=1", "data.limit=32"), tmp_path / "run", show=False)
    assert main(["eval", str(folder), "--k", "33"]) == 2
    message = "dsf: k must be in [1, 32], the number of training images in the bank; got 33\n"
    assert capsys.readouterr().err.endswith(message)
    protocol = evaluate(folder, ["knn"], "cpu", choices=Choices(k=32))["knn k=32"]["protocol"]
    assert "lowered_from" not in protocol


def test_an_official_validation_split(tmp_path, monkeypatch):
    from dsf.data import DATASETS, ArraySource, DataSet, prepare

    generator = np.random.default_rng(0)
    counts = {"train": 30, "validation": 20, "test": 10}
    arrays = {
        split: (
            generator.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8),
            np.arange(count) % 3,
        )
        for split, count in counts.items()
    }
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    source = ArraySource("noise", "abc", arrays)
    monkeypatch.setitem(DATASETS, "noise", DataSet("noise", "", lambda *_: source, 16))
    prepare("noise")
    encoder = torch.nn.Sequential(torch.nn.AvgPool2d(4), torch.nn.Flatten())
    options = {"data": "noise", "folder": tmp_path / "kept", "choices": Choices(k=50)}
    results = evaluate(encoder, ["knn", "linear"], "cpu", **options)
    protocol = results["linear@noise"]["protocol"]
    assert protocol["chosen_on"] == "the 20 official validation images"
    assert protocol["data"]["train_samples"] == 50  # k = 50 neighbours are to be found
    assert protocol["data"]["validation_samples"] == 20
    assert protocol["data"]["content"].keys() == counts.keys()


def test_any_module(tmp_path):
    encoder = torch.nn.Sequential(
        torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(48, 16)
    )
    said = []

    def call():
        return evaluate(encoder, ["knn"], "cpu", data="embedded", folder=tmp_path, say=said.append)

    first = call()["knn@embedded"]
    assert first["protocol"]["encoder"]["name"] == "Sequential"
    assert 0.2 < first["backbone"] < 0.5
    assert call()["knn@embedded"] == first
    with torch.no_grad():
        encoder[2].weight.zero_()  # another encoder: what is kept is not of it
        assert call()["knn@embedded"]["backbone"] == 0.1
    assert [text.rpartition(": ")[-1] for text in said] == [
        "evaluating",
        "kept, as it is there already",
        "evaluating",
    ]


def test_on_a_full_disk_nothing_is_lost(tmp_path, monkeypatch):
    """What was found is told before it is written; settings that were tried are kept until then."""
    encoder = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten())
    told, trained, fine_tune = {}, [], Finetune._train

    def call():
        options = {"data": "embedded", "folder": tmp_path, "choices": Choices(budget=0.0001)}
        return evaluate(encoder, ["finetune"], "cpu", done=told.__setitem__, **options)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def counted(*arguments):
        trained.append(1)
        return fine_tune(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("dsf.experiments.run.write_results", full)
        with pytest.raises(OSError, match="No space left"):
            call()
    (entry,) = told.values()
    monkeypatch.setattr(Finetune, "_train", counted)
    (found,) = call().values()
    assert len(trained) == 1  # the last training alone
    assert found["accuracy"] == entry["accuracy"]
    assert not (tmp_path / "partial").exists()


def test_seconds_are_those_of_all_tries(tmp_path, monkeypatch):
    encoder = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten())
    choices = Choices(budget=0.0001)

    def call():
        found = evaluate(
            encoder, ["finetune"], "cpu", data="embedded", folder=tmp_path, choices=choices
        )
        return next(iter(found.values()))

    fine_tune, left = Finetune._train, [2]

    def stops(*arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return fine_tune(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Finetune, "_train", stops)
        with pytest.raises(KeyboardInterrupt):
            call()
    (path,) = (tmp_path / "partial").iterdir()
    write_json(path, read_json(path) | {"seconds": 1000.0})
    assert call()["provenance"]["seconds"] > 1000


def test_errors(run, tmp_path, capsys):
    assert main(["eval", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"dsf: {tmp_path} is not a run: it has no config.yaml\n"
    assert main(["eval", str(run), "knm"]) == 2
    assert (
        "evaluation must be one of knn, linear, finetune, corruption, geometry; got 'knm'"
        in capsys.readouterr().err
    )
    (tmp_path / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    assert main(["eval", str(tmp_path)]) == 2
    assert "has no whole checkpoint yet" in capsys.readouterr().err


def test_a_run_of_another_architecture(run, tmp_path):
    import shutil

    other = tmp_path / "run"
    shutil.copytree(run, other)
    config = other / "config.yaml"
    config.write_text(config.read_text().replace("width: 4", "width: 8"))
    with pytest.raises(ValueError, match=r"is of another architecture: encoder.* has the shape"):
        load_run(other, "cpu")


def test_data_without_labels(tmp_path, monkeypatch, capsys):
    import miniature

    from dsf.data import prepare

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', {'': 40})}"
    prepare(name, size=32)
    settings = tiny.settings(f"data.name={name}", "epochs=1", "batch_size=16", *MONITOR)
    train(settings, tmp_path / "run")
    assert "no kNN on the way, which takes labelled splits" in capsys.readouterr().err
    assert load_recipe(str(tmp_path / "run" / "config.yaml")).knn.every == 0
    assert torch.isfinite(
        torch.tensor([line["loss"] for line in tiny.lines(tmp_path / "run")])
    ).all()


def test_data_of_one_class(tmp_path, monkeypatch, capsys):
    """As where all images were put into one folder, since others want class folders."""
    import miniature

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    folder = miniature.picture_folder(tmp_path / "pictures", {"train/all": 20, "test/all": 5})
    name = f"folder:{folder}"
    assert main(["data", "prepare", name, "--size", "32"]) == 0
    said = capsys.readouterr().err
    assert "kNN and linear evaluation need classes" in said
    assert "leave-one-out" not in said
    settings = [*tiny.SETTINGS, f"data.name={name}", "data.limit=null", "epochs=1", *MONITOR]
    assert main(["train", "demo", "-o", str(tmp_path / "run"), *settings]) == 0
    said = capsys.readouterr().err
    assert "no kNN on the way" in said
    assert "dsf eval" not in said
    for options in ([], ["--leave-one-out"]):
        assert main(["eval", str(tmp_path / "run"), "knn", *options]) == 2
        assert f"needs two classes or more; {name} has 'all' alone" in capsys.readouterr().err
