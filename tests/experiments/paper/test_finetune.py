import json
import os
import shutil
import signal

import pytest
import tiny_plan
from tiny_sets import prepare_sets

from dsf.evaluation import Finetune
from dsf.experiments.paper import reproduce as module
from dsf.experiments.paper.listing import standings
from dsf.experiments.paper.outcome import read_outcome, result_path
from dsf.experiments.paper.reproduce import reproduce
from dsf.experiments.paper.weights import export_weights
from dsf.training import Interrupted


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


def test_fine_tuning_of_another_training(transferring, tmp_path):
    """What a run's folder holds is fine-tuned if it is what the run's result is of."""
    plan, results, runs = transferring
    weights, name = tmp_path / "weights", "table2/dsf/pets"
    export_weights(runs / "head/dsf", weights / "head/dsf")
    own = read_outcome(results, "head/dsf").checkpoints
    shutil.rmtree(runs / "head/dsf")
    shutil.copytree(runs / "table1/dsf", runs / "head/dsf")
    with pytest.raises(ValueError, match="head/dsf holds another training than .*its result"):
        reproduce(plan, [name], results, runs, show=False)
    assert read_outcome(results, name) is None
    reproduce(plan, [name], results, runs, weights=weights, show=False)
    assert read_outcome(results, name).checkpoints == own


def test_fine_tuning_of_other_settings(transferring):
    """Its result would be one of a configuration that nobody asked for."""
    plan, results, runs = transferring
    name = "table2/dsf/pets"
    with pytest.raises(
        ValueError, match="head/dsf.json is the result of .* seed is 0 there, and 5"
    ):
        reproduce(plan, [name], results, runs, ["seed=5"], show=False)
    assert read_outcome(results, name) is None


def test_fine_tuning_of_exported_weights(transferring, tmp_path):
    """Small files are enough, where the run folder was left on another machine."""
    plan, results, runs = transferring
    weights, name = tmp_path / "weights", "table2/dsf/pets"
    export_weights(runs / "table1/dsf", weights / "head/dsf")  # those of another run
    shutil.move(runs / "head/dsf", tmp_path / "away")
    with pytest.raises(ValueError, match="or its weights to .*weights/head/dsf, or train it again"):
        reproduce(plan, [name], results, runs, weights=weights, show=False)
    shutil.rmtree(weights)
    export_weights(tmp_path / "away", weights / "head/dsf")
    reproduce(plan, [name], results, runs, weights=weights, show=False)
    small = read_outcome(results, name).content["evaluations"]["finetune@pets:16 budget=5e-05"]
    assert small["protocol"]["kept_in"] == "float16"
    shutil.move(tmp_path / "away", runs / "head/dsf")
    reproduce(plan, [name], results, runs, again=True, weights=weights, show=False)
    whole = read_outcome(results, name).content["evaluations"]["finetune@pets:16 budget=5e-05"]
    small["protocol"].pop("kept_in")
    assert small["protocol"] == whole["protocol"]  # size, normalisation, seed, data


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
