import json
import os
import shutil
import signal

import pytest
import tiny_plan

from dsf.experiments.build import resolve
from dsf.experiments.evaluations import Choices, evaluate
from dsf.experiments.paper import reproduce as module
from dsf.experiments.paper.claim import claimed
from dsf.experiments.paper.configuration import configure, difference
from dsf.experiments.paper.document import Book, render
from dsf.experiments.paper.listing import standings
from dsf.experiments.paper.outcome import Outcome, read_outcome, result_path
from dsf.experiments.paper.reproduce import reproduce
from dsf.experiments.paper.weights import export_weights
from dsf.training import Interrupted
from dsf.training.health import NonFiniteLossError


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


def _without_linear(results, name):
    path = result_path(results, name)
    content = json.loads(path.read_text())
    entry = content["evaluations"].pop("linear")
    path.write_text(json.dumps(content))
    return entry


def test_evaluations_that_a_result_lacks_are_added(copy, monkeypatch, tmp_path):
    """From its folder, or where that is gone from its exported weights; without training."""
    plan, results, runs = copy
    name, said = "table1/dsf", []
    entry = _without_linear(results, name)
    (standing,) = standings(plan, [name], results, runs)
    assert standing.state == "done"
    assert standing.about.endswith("; lacks linear")
    monkeypatch.setattr(module, "train", None)
    reproduce(plan, [name], results, runs, say=said.append, show=False)
    assert said[0] == f"{name}: done but for linear"
    again = read_outcome(results, name).content["evaluations"]["linear"]
    assert again == entry  # kept in the run folder
    weights = tmp_path / "weights"
    export_weights(runs / name, weights / name)
    shutil.rmtree(runs)
    _without_linear(results, name)
    reproduce(plan, [name], results, runs, weights=weights, show=False)
    found = read_outcome(results, name).content["evaluations"]
    assert list(found) == ["knn", "linear"]
    assert found["linear"]["protocol"] == entry["protocol"] | {"kept_in": "float16"}
    assert found["linear"]["accuracy"] == pytest.approx(entry["accuracy"], abs=0.02)
    _without_linear(results, name)
    shutil.rmtree(weights)
    reproduce(plan, [name], results, runs, weights=weights, say=said.append, show=False)
    assert "done already but for linear, as its encoder is gone, in " in said[-1]


def test_a_result_has_the_numbers_of_one_encoder(copy):
    """A folder may hold a later training, or a trial: its encoder is not the one of the result."""
    plan, results, runs = copy
    name, said = "table1/dsf", []
    _without_linear(results, name)
    before = result_path(results, name).read_bytes()
    shutil.rmtree(runs / name)
    shutil.copytree(runs / "table1/feature-avg", runs / name)
    reproduce(plan, [name], results, runs, say=said.append, show=False)
    assert "done already but for linear, as its encoder is gone, in " in said[-1]
    assert result_path(results, name).read_bytes() == before


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


def test_results_are_looked_at_before_any_work(copy, monkeypatch):
    """Also those whose turn comes after hours of others."""
    plan, results, runs = copy
    result_path(results, "head/dsf").unlink()
    path = result_path(results, "tuning/dsf/lr-0.12")
    whole = path.read_text()
    monkeypatch.setattr(module, "train", None)
    path.write_text(whole.replace('"limit": 96', '"limit": 64'))
    with pytest.raises(ValueError, match="lr-0.12.json is the result of another configuration"):
        reproduce(plan, ["head/dsf", "tuning/dsf/lr-0.12"], results, runs, show=False)
    path.write_text(whole[:99])
    with pytest.raises(ValueError, match="lr-0.12.json is not JSON"):
        reproduce(plan, ["head/dsf", "tuning/dsf/lr-0.12"], results, runs, show=False)
    path.unlink()
    config = runs / "tuning/dsf/lr-0.12/config.yaml"
    config.write_text(config.read_text().replace("limit: 96", "limit: 64"))
    with pytest.raises(ValueError, match="lr-0.12 holds a run of another configuration"):
        reproduce(plan, ["head/dsf", "tuning/dsf/lr-0.12"], results, runs, show=False)


def test_one_that_fails_keeps_no_other_from_its_turn(copy, monkeypatch):
    plan, results, runs = copy
    broken, whole, needs = "tuning/dsf/lr-0.12", "head/dsf", "table1/dsf"
    for name in (broken, whole, needs):
        result_path(results, name).unlink()
        shutil.rmtree(runs / name)
    train, said = module.train, []

    def fail(settings, folder, **options):
        if folder == runs / broken:
            raise RuntimeError("out of memory")
        train(settings, folder, **options)

    monkeypatch.setattr(module, "train", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        reproduce(plan, [broken, whole, needs], results, runs, say=said.append, show=False)
    assert f"{broken}: failed: out of memory" in said
    assert read_outcome(results, whole) is not None
    assert any(text.startswith(f"{needs}: failed: ") and "1 of 2 candid" in text for text in said)
    assert read_outcome(results, needs) is None


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


def test_missing_textures(tmp_path, monkeypatch):
    """The corruption benchmark comes last, after the training and the other evaluations."""
    evaluations = tiny_plan.content()["evaluations"] | {"full": {"names": ["knn", "corruption"]}}
    runs = {"full": {"method": "dsf", "tuned": False, "evaluations": "full"}}
    plan = tiny_plan.load(tmp_path, evaluations=evaluations, runs=runs, groups={})
    monkeypatch.setattr("dsf.data.corruptions.textures.find_spec", lambda name: None)
    monkeypatch.setattr(module, "train", None)
    with pytest.raises(FileNotFoundError, match=r"pip install 'dsf-ssl\[corruptions\]'"):
        reproduce(plan, ["full"], tmp_path / "results", tmp_path / "runs", show=False)


def test_a_damaged_result_stops_the_document(copy, tmp_path):
    plan, results, _ = copy
    render([Book.read(plan, results)], tmp_path / "docs")
    result_path(results, "table1/dsf").write_text('{"run": ')
    with pytest.raises(ValueError, match="table1/dsf.json is not JSON"):
        render([Book.read(plan, results)], tmp_path / "docs")


@pytest.mark.parametrize(
    "changed",
    [
        "data.limit=64",
        "hidden=32",
        "optimiser.lr=0.5",
        "views.options={flip: 0.0}",
        "encoder.options={width: 4, stem: imagenet}",
    ],
)
def test_results_of_other_settings_are_no_results(finished, changed):
    plan, folder, _ = finished
    results = folder / "results"
    asked = configure(plan, "head/dsf", results)
    there = read_outcome(results, "head/dsf")
    assert difference(there, asked) is None
    trial = configure(plan, "head/dsf", results, [changed]).settings
    content = {**there.content, "settings": resolve(trial).model_dump(mode="json")}
    key = changed.partition("=")[0]
    assert difference(Outcome(content), asked).startswith(key)
    assert difference(Outcome(content), configure(plan, "head/dsf", results, [changed])) is None
    # And the other way round.
    assert difference(there, configure(plan, "head/dsf", results, [changed])).startswith(key)


def test_the_document_is_of_the_plan_s_settings(copy, tmp_path):
    plan, results, _ = copy
    path = result_path(results, "table1/dsf")
    path.write_text(path.read_text().replace('"limit": 96', '"limit": 64'))
    with pytest.raises(ValueError, match=r"table1/dsf.json is the result of .*: data.limit is 64"):
        Book.read(plan, results)


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
    assert choices == Choices(linear="paper")
    found = evaluate(folder / "runs" / "table1" / "dsf", [name], "cpu", choices=choices)
    ((key, entry),) = found.items()
    assert key == "corruption linear=linear-paper"
    assert entry["protocol"]["severities"] == [1, 2, 3, 4, 5]
    assert entry["protocol"]["linear"]["name"] == "linear-paper"
    by_severity = entry["details"]["by_severity"]
    assert entry["mce"] == pytest.approx(sum(by_severity) / 5)
    assert entry["mce_of_severity_1"] == by_severity[0]
    assert entry["details"]["linear"]["accuracy"] == pytest.approx(1 - entry["clean_error"])


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
