import json
import os
import shutil
import signal

import pytest
import tiny_plan
from tiny_sets import prepare_sets

from dsf.evaluation import Finetune
from dsf.experiments.evaluations import Choices, evaluate
from dsf.experiments.paper import reproduce as module
from dsf.experiments.paper.claim import claimed
from dsf.experiments.paper.document import Book, render
from dsf.experiments.paper.listing import standings
from dsf.experiments.paper.outcome import read_outcome, result_path
from dsf.experiments.paper.reproduce import reproduce
from dsf.training import Interrupted
from dsf.training.health import NonFiniteLossError


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The whole way: tuning, runs, evaluations, results."""
    folder, said = tmp_path_factory.mktemp("paper"), []
    plan = tiny_plan.load(folder)
    names = plan.select(["tuning", "table1", "head"])
    reproduce(plan, names, folder / "results", folder / "runs", say=said.append, show=False)
    return plan, folder, said


@pytest.fixture
def copy(finished, tmp_path):
    plan, folder, _ = finished
    for part in ("results", "runs"):
        shutil.copytree(folder / part, tmp_path / part)
    return plan, tmp_path / "results", tmp_path / "runs"


def test_from_tuning_to_results(finished):
    plan, folder, _ = finished
    results = folder / "results"
    scores = {}
    for name in plan.candidates("dsf"):
        outcome = read_outcome(results, name)
        assert list(outcome.content["evaluations"]) == ["knn leave_one_out=True"]
        assert outcome.content["knn"]["epoch"] == []  # no test image was looked at
        scores[name] = outcome.score
    outcome = read_outcome(results, "table1/dsf")
    content = outcome.content
    best = max(scores, key=scores.get)
    assert content["tuning"]["chosen"] == best
    assert content["tuning"]["scores"] == scores
    assert outcome.setting("optimiser.lr") == float(best.rpartition("-")[2])
    assert list(content["evaluations"]) == ["knn", "linear"]
    assert content["evaluations"]["knn"]["backbone"] == content["knn"]["backbone"][-1]
    assert content["knn"]["epoch"] == [0, 1, 2]
    assert content["curve"]["epoch"] == [1, 2]
    assert {"loss", "margin", "kl_log", "negative_kl_cos"} <= content["curve"].keys()
    assert content["training"]["views"] == 2 * 96 * 4
    assert content["environment"]["packages"]["torch"]
    assert content["train"].startswith("dsf train demo ")
    assert f"optimiser.lr={outcome.setting('optimiser.lr')}" in content["train"]
    assert read_outcome(results, "head/dsf").content["tuning"] is None
    assert all(path.stat().st_size < 100_000 for path in results.rglob("*.json"))


def test_what_is_done_is_not_done_again(copy, monkeypatch):
    plan, results, runs = copy
    before = {path: path.read_bytes() for path in results.rglob("*.json")}
    shutil.rmtree(runs)  # results alone are enough, as on another machine
    monkeypatch.setattr(module, "train", None)
    said = []
    reproduce(plan, list(plan.every), results, runs, say=said.append, show=False)
    assert len(said) == len(plan.every)
    assert all("done already" in text for text in said)
    assert {path: path.read_bytes() for path in results.rglob("*.json")} == before


def test_stopped_in_training_it_goes_on(copy, monkeypatch):
    """Asked to stop in the middle, and called again, it has the same numbers."""
    plan, results, runs = copy
    name = "table1/dsf"
    whole = read_outcome(results, name)
    result_path(results, name).unlink()
    shutil.rmtree(runs / name)
    train = module.train

    def stop(settings, folder, **options):
        train(settings, folder, **options)
        last = max((folder / "checkpoints").iterdir())
        shutil.rmtree(last)
        raise Interrupted("stopped")

    asked = [name]
    monkeypatch.setattr(module, "train", stop)
    with pytest.raises(Interrupted):
        reproduce(plan, asked, results, runs, ["checkpoint.steps=5"], show=False)
    assert read_outcome(results, name) is None
    assert (runs / name / "checkpoints" / "step-00000010").is_dir()
    monkeypatch.setattr(module, "train", train)
    reproduce(plan, asked, results, runs, show=False)
    again = read_outcome(results, name)
    assert again.content["environment"]["resumed"][0]["step"] == 10
    assert again.curve("loss") == whole.curve("loss")
    assert (again.knn, again.linear_fast) == (whole.knn, whole.linear_fast)


def test_killed_in_evaluation_it_goes_on(copy, monkeypatch):
    plan, results, runs = copy
    name = "table1/dsf"
    whole = read_outcome(results, name)
    result_path(results, name).unlink()
    kept = runs / name / "results.json"
    entries = json.loads(kept.read_text())
    kept.write_text(json.dumps({key: entries[key] for key in ("training", "knn")}))
    said = []
    reproduce(plan, [name], results, runs, say=said.append, show=False)
    assert "knn: kept, as it is there already" in said
    assert "linear: evaluating" in said
    assert read_outcome(results, name).linear_fast == whole.linear_fast


def test_a_run_without_its_tuning(finished, tmp_path):
    plan, _, _ = finished
    with pytest.raises(ValueError, match="`dsf reproduce tuning/dsf` runs the others"):
        reproduce(plan, ["head/dsf", "table1/dsf"], tmp_path, tmp_path / "runs", show=False)
    assert not list(tmp_path.iterdir())  # before any work


def test_results_of_another_configuration(copy):
    plan, results, runs = copy
    path = result_path(results, "table1/dsf")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another configuration: seed is 0 there, and 5 here"):
        reproduce(plan, ["table1/dsf"], results, runs, ["seed=5"], show=False)
    assert path.read_bytes() == before
    path.unlink()
    with pytest.raises(ValueError, match="holds a run of another configuration.*--again begins"):
        reproduce(plan, ["table1/dsf"], results, runs, ["seed=5"], show=False)
    path.write_bytes(before)
    with pytest.raises(ValueError, match="heads: no such setting"):
        reproduce(plan, ["table1/dsf"], results, runs, ["heads=5"], again=True, show=False)
    assert path.read_bytes() == before  # nothing is forgotten for a mistake
    reproduce(plan, ["table1/dsf"], results, runs, ["seed=5"], again=True, show=False)
    assert read_outcome(results, "table1/dsf").setting("seed") == 5


def test_a_run_that_another_process_is_at(copy):
    plan, results, runs = copy
    name = "head/dsf"
    result_path(results, name).unlink()
    said = []
    with claimed(runs / name) as mine:
        assert mine
        reproduce(plan, [name], results, runs, say=said.append, show=False)
        assert said == [f"{name}: another process is at it"]
        assert read_outcome(results, name) is None
    reproduce(plan, [name], results, runs, show=False)
    assert read_outcome(results, name) is not None


def test_a_training_that_fails_is_a_result(copy, monkeypatch):
    plan, results, runs = copy
    train = module.train
    name = "tuning/dsf/lr-0.12"

    def fail(settings, folder, **options):
        train(settings, folder, **options)
        raise NonFiniteLossError("the loss of step 4 is", 0.12, None, False)

    monkeypatch.setattr(module, "train", fail)
    reproduce(plan, [name], results, runs, again=True, show=False)
    outcome = read_outcome(results, name)
    assert outcome.failure == "the loss of step 4 is not finite"
    assert outcome.score != outcome.score


def test_equal_runs_are_trained_once(copy, tmp_path, monkeypatch):
    """What tuning chose for one run is what another was told to take."""
    _, results, runs = copy
    chosen = read_outcome(results, "table1/dsf").setting("optimiser.lr")
    told = {"method": "dsf", "overrides": ["epochs=2", f"optimiser.lr={chosen}"]}
    other = {"method": "dsf", "overrides": ["epochs=2", "optimiser.lr=0.5"]}
    extra = {"sweep/told": told, "sweep/other": other}
    plan = tiny_plan.load(tmp_path, runs=tiny_plan.RUNS | extra)
    monkeypatch.setattr(module, "train", None)
    reproduce(plan, ["sweep/told"], results, runs, show=False)
    twin = read_outcome(results, "sweep/told")
    assert twin.content["same_as"] == "table1/dsf"
    assert twin.knn == read_outcome(results, "table1/dsf").knn
    with pytest.raises(TypeError):  # would train
        reproduce(plan, ["sweep/other"], results, runs, show=False)


def test_a_missing_data_set(finished, tmp_path, monkeypatch):
    from dsf.experiments.paper.plan import load_plan

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "data"))
    with pytest.raises((ValueError, OSError), match="dsf data prepare cifar10"):
        reproduce(load_plan("cifar10"), ["head/dsf"], tmp_path, tmp_path / "runs", show=False)


def test_a_damaged_result_stops_the_document(copy, tmp_path):
    plan, results, _ = copy
    render([Book.read(plan, results)], tmp_path / "docs")
    result_path(results, "table1/dsf").write_text('{"run": ')
    with pytest.raises(ValueError, match="table1/dsf.json is not JSON"):
        render([Book.read(plan, results)], tmp_path / "docs")


def test_the_paper_s_evaluations(finished, monkeypatch):
    """Corruption at severity 1 with the classifier of the paper's linear evaluation."""
    from dsf.experiments import evaluations

    class LinearPaper(evaluations.LinearPaper):
        def __init__(self, labels=1.0):
            super().__init__(labels, epochs=1, learning_rate=1.0)

    monkeypatch.setattr(evaluations, "LinearPaper", LinearPaper)
    monkeypatch.setattr("dsf.data.corruptions.CORRUPTIONS", ("contrast", "pixelate"))
    _, folder, _ = finished
    name, choices = module._EVALUATIONS["corruption"]
    assert choices == Choices(linear="paper", severities=(1,))
    found = evaluate(folder / "runs" / "table1" / "dsf", [name], "cpu", choices=choices)
    ((key, entry),) = found.items()
    assert key == "corruption linear=linear-paper severities=1"
    assert entry["protocol"]["severities"] == [1]
    assert entry["protocol"]["linear"]["name"] == "linear-paper"
    assert entry["mce"] == entry["mce_of_severity_1"]
    assert entry["details"]["linear"]["accuracy"] == pytest.approx(1 - entry["clean_error"])


@pytest.fixture
def transferring(copy, tmp_path, monkeypatch):
    """The same with fine-tuning of an encoder on two data sets, one step a setting."""
    _, results, runs = copy
    prepare_sets(tmp_path / "data", monkeypatch, {"pets": 16, "dtd": 16})
    transfer = {"of": ["head/dsf"], "data": ["pets:16", "dtd:16"], "budget": 5e-5}
    return tiny_plan.load(tmp_path, transfers={"table2": transfer}), results, runs


def test_fine_tuning(transferring):
    plan, results, runs = transferring
    said = []
    names = plan.select(["table2"])
    assert names == ["table2/dsf/pets", "table2/dsf/dtd"]
    reproduce(plan, names, results, runs, say=said.append, show=False)
    assert "table2/dsf/pets: dsf eval head/dsf finetune --data pets:16 --budget 5e-05" in said
    outcome = read_outcome(results, "table2/dsf/pets")
    ((key, entry),) = outcome.content["evaluations"].items()
    assert key == "finetune@pets:16 budget=5e-05"
    assert entry["protocol"]["steps"] == 1
    assert len(entry["details"]["validation"]) == 8
    assert "confusion" not in entry["details"]
    assert outcome.finetuned == 100 * entry["mean_per_class"]
    content = outcome.content
    assert content["finetuning"]["of"] == "head/dsf"
    assert content["settings"]["head"] == "mlp"
    assert content["environment"]["packages"]["torch"]
    assert outcome.spent > 0
    assert not list((runs / "table2").rglob("partial"))
    before = result_path(results, "table2/dsf/pets").read_bytes()
    shutil.rmtree(runs)  # results alone are enough
    reproduce(plan, names, results, runs, show=False)
    assert result_path(results, "table2/dsf/pets").read_bytes() == before


def test_fine_tuning_stopped_goes_on(transferring):
    """A signal stops it at once; settings that were tried are not tried again."""
    plan, results, runs = transferring
    name, said = "table2/dsf/dtd", []

    def stop(text):
        said.append(text)
        if text.startswith("finetune: 3 of 8"):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="stopped by SIGTERM during fine-tuning"):
        reproduce(plan, [name], results, runs, say=stop, show=False)
    assert read_outcome(results, name) is None
    (standing,) = standings(plan, [name], results, runs)
    assert standing[1:3] == ("partial", "3 settings tried")
    tried = []

    class Counted(Finetune):
        def _train(self, *arguments):
            tried.append(arguments[2])
            return super()._train(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsf.experiments.evaluations.Finetune", Counted)
        reproduce(plan, [name], results, runs, show=False)
    assert len(tried) == 5 + 1
    assert read_outcome(results, name).finetuned >= 0


def test_evaluations_are_stopped_at_once(copy):
    plan, results, runs = copy
    name = "table1/dsf"
    result_path(results, name).unlink()
    (runs / name / "results.json").unlink()

    def stop(text):
        if text == "linear: evaluating":
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="during evaluations; what is complete of it is kept"):
        reproduce(plan, [name], results, runs, say=stop, show=False)
    assert "knn" in json.loads((runs / name / "results.json").read_text())
    reproduce(plan, [name], results, runs, show=False)
    assert read_outcome(results, name).linear_fast > 0


def test_fine_tuning_brings_the_run_of_its_encoder(transferring, monkeypatch):
    plan, results, runs = transferring
    result_path(results, "head/dsf").unlink()
    shutil.rmtree(runs / "head/dsf")
    reproduce(plan, ["table2/dsf/pets"], results, runs, show=False)
    assert read_outcome(results, "head/dsf").knn > 0
    assert read_outcome(results, "table2/dsf/pets").finetuned >= 0


def test_fine_tuning_without_its_encoder(transferring):
    plan, results, runs = transferring
    shutil.rmtree(runs / "head/dsf")
    with pytest.raises(ValueError, match="head/dsf is gone.*`dsf reproduce head/dsf --again`"):
        reproduce(plan, ["table2/dsf/pets"], results, runs, show=False)
    reproduce(plan, ["table2/dsf/pets", "head/dsf"], results, runs, again=True, show=False)
    assert read_outcome(results, "table2/dsf/pets").finetuned >= 0


def test_fine_tuning_on_data_that_are_missing(transferring, monkeypatch, tmp_path):
    plan, results, runs = transferring
    result_path(results, "head/dsf").unlink()
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(module, "train", None)
    with pytest.raises(FileNotFoundError, match="run `dsf data prepare pets --size 16`"):
        reproduce(plan, ["table2/dsf/pets"], results, runs, show=False)  # before any training


def test_fine_tuning_of_a_run_that_failed(transferring):
    plan, results, runs = transferring
    path = result_path(results, "head/dsf")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"failure": "not finite"}))
    reproduce(plan, ["table2/dsf/pets"], results, runs, show=False)
    outcome = read_outcome(results, "table2/dsf/pets")
    assert outcome.failure == "head/dsf failed"
    assert outcome.content["evaluations"] == {}
