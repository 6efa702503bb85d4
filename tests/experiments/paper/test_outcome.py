import json
import math

import pytest
import tiny_plan
from pages import write_run

from dsf.evaluation.partial import Partial
from dsf.experiments.paper.configuration import (
    Configuration,
    NotTunedError,
    choose,
    configure,
    difference,
)
from dsf.experiments.paper.listing import estimated_seconds, standings, strangers
from dsf.experiments.paper.outcome import Outcome, read_outcome, result_path, write_outcome
from dsf.experiments.paper.plan import load_plan
from dsf.experiments.paper.reduce import reduced
from dsf.experiments.recipe import load_recipe


@pytest.fixture
def plan(tmp_path):
    return tiny_plan.load(tmp_path)


def put(plan, results, name, **options):
    return write_outcome(results, name, tiny_plan.made_up(plan, name, **options))


def test_numbers(plan, tmp_path):
    put(plan, tmp_path, "table1/dsf", rank=2)
    outcome = read_outcome(tmp_path, "table1/dsf")
    assert outcome.knn_backbone == pytest.approx(52)
    assert outcome.knn == pytest.approx(51)
    assert outcome.linear_fast == pytest.approx(54)
    assert outcome.linear_paper == pytest.approx(55)  # of the corruption benchmark
    assert (outcome.mce, outcome.mce_all) == (pytest.approx(38), pytest.approx(43))
    assert outcome.score == pytest.approx(51.8)
    assert outcome.test_images == 10_000
    assert (outcome.seconds, outcome.gibibytes) == (4.0, 3.0)
    assert outcome.setting("loss.name") == "dsf"
    assert outcome.curve("margin") == [(1, 0.1), (2, 0.2)]
    assert outcome.curve("projection", "seconds", "knn") == [(0.0, 0.25), (4.0, 0.52)]
    assert outcome.curve("nothing") == []


def test_what_a_result_lacks(plan):
    content = tiny_plan.made_up(plan, "table1/dsf")
    every = ("knn", "knn-leave-one-out", "linear", "linear-paper", "corruption")
    assert Outcome(content).lacks(every) == []
    entry = content["evaluations"].pop("corruption linear=linear-paper")
    del content["evaluations"]["linear"]
    assert Outcome(content).lacks(every) == ["linear", "linear-paper", "corruption"]
    entry["protocol"]["severities"] = [1]
    content["evaluations"]["corruption linear=linear-paper severities=1"] = entry
    outcome = Outcome(content)
    assert outcome.lacks(every) == ["linear", "corruption"]  # the one of all severities
    assert outcome.mce == pytest.approx(40)
    assert Outcome(content | {"failure": "not finite"}).lacks(every) == []


def test_compiling_is_not_counted_among_the_seconds(plan):
    content = tiny_plan.made_up(plan, "table1/dsf")
    content["training"] = {"device_seconds": 2 * 207.0, "processes": 2}
    content["curve"] = {"epoch": [1, 4, 7, 8], "seconds": [103.0, 112.0, 203.0, 206.0]}
    outcome = Outcome(content)
    assert outcome.start == pytest.approx(100)  # and not what a later pause took
    assert outcome.seconds == pytest.approx(214)
    assert outcome.spent == 414.0
    content["curve"] = {"epoch": [1, 2, 3], "seconds": [1.0, 3.0, 5.0]}
    assert Outcome(content).seconds == 414.0
    content["curve"] = {"epoch": [1], "seconds": [103.0]}
    assert Outcome(content).seconds == 414.0  # nothing to compare the only epoch with


def test_what_was_not_measured_is_no_number(plan):
    content = tiny_plan.made_up(plan, "table1/dsf") | {"evaluations": {}, "training": {}}
    outcome = Outcome(content)
    for value in (outcome.knn, outcome.linear_paper, outcome.mce, outcome.seconds):
        assert math.isnan(value)


def test_leave_one_out_is_no_test_accuracy(plan, tmp_path):
    put(plan, tmp_path, "tuning/dsf/lr-0.03", rank=1)
    outcome = read_outcome(tmp_path, "tuning/dsf/lr-0.03")
    assert outcome.score == pytest.approx(50.8)
    assert math.isnan(outcome.knn)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON.*damaged: bring it back from version control, or remove it"),
        ("{}", "is no whole result: it has no run, settings"),
        ("[1]", "must hold a JSON object"),
    ],
)
def test_damaged_files(plan, tmp_path, text, message):
    path = put(plan, tmp_path, "table1/dsf")
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_outcome(tmp_path, "table1/dsf")


def test_files_of_other_runs_and_formats(plan, tmp_path):
    content = tiny_plan.made_up(plan, "table1/dsf")
    path = result_path(tmp_path, "table1/dsf")
    path.parent.mkdir()
    path.write_text(json.dumps(content | {"run": "head/dsf"}))
    with pytest.raises(
        ValueError, match="must be the result of table1/dsf; got that of 'head/dsf'"
    ):
        read_outcome(tmp_path, "table1/dsf")
    path.write_text(json.dumps(content | {"format": 2}))
    with pytest.raises(ValueError, match="format must be 1; got 2"):
        read_outcome(tmp_path, "table1/dsf")
    assert read_outcome(tmp_path, "table1/feature-avg") is None


def test_the_best_candidate_wins(plan, tmp_path):
    with pytest.raises(
        NotTunedError, match="0 of 2 candidates have run: `dsf reproduce tuning/dsf`"
    ):
        choose(plan, "dsf", tmp_path, "table1/dsf")
    put(plan, tmp_path, "tuning/dsf/lr-0.03", rank=1)
    with pytest.raises(NotTunedError, match="of which 1 of 2"):
        choose(plan, "dsf", tmp_path, "table1/dsf")
    put(plan, tmp_path, "tuning/dsf/lr-0.12", rank=3)
    choice = choose(plan, "dsf", tmp_path, "table1/dsf")
    assert choice.name == "tuning/dsf/lr-0.12"
    assert choice.overrides == ("optimiser.lr=0.12",)
    assert choice.scores == pytest.approx({"tuning/dsf/lr-0.03": 50.8, "tuning/dsf/lr-0.12": 52.8})
    put(plan, tmp_path, "tuning/dsf/lr-0.12", failure="the loss of step 3 is not finite")
    assert choose(plan, "dsf", tmp_path, "table1/dsf").name == "tuning/dsf/lr-0.03"
    put(plan, tmp_path, "tuning/dsf/lr-0.03", rank=2)
    put(plan, tmp_path, "tuning/dsf/lr-0.12", rank=2)
    assert choose(plan, "dsf", tmp_path, "table1/dsf").name == "tuning/dsf/lr-0.03"  # the first


def test_all_candidates_failed(plan, tmp_path):
    for name in plan.candidates("dsf"):
        put(plan, tmp_path, name, failure="not finite")
    with pytest.raises(ValueError, match="all candidates of tuning/dsf have failed"):
        choose(plan, "dsf", tmp_path, "table1/dsf")


def test_what_makes_a_configuration(plan):
    outcome = Outcome(tiny_plan.made_up(plan, "table1/dsf"))
    run, method = plan.every["table1/dsf"], plan.methods["dsf"]
    own = [*method.overrides, "optimiser.lr=0.03", *run.overrides]

    def compare(*overrides):
        settings = load_recipe(method.recipe, [*own, *overrides])
        asked = Configuration("table1/dsf", method.recipe, (), settings, None)
        return difference(outcome, asked)

    assert compare() is None
    assert compare("device=auto", "knn.every=7", "checkpoint.keep=9", "compile=true") is None
    assert compare("optimiser.lr=0.5") == "optimiser.lr is 0.03 there, and 0.5 here"
    assert compare("seed=3") == "seed is 0 there, and 3 here"
    del outcome.content["settings"]["loss"]["detach_resultant"]  # a setting younger than the result
    assert compare() is None
    assert "detach_resultant" in compare("loss.detach_resultant=true")


def test_reduction(tmp_path):
    lines = []
    for epoch in range(1, 251):
        values = {"loss": 1 / 3 + epoch, "margin": math.nan if epoch == 1 else 0.5, "other": 1.0}
        step = 10 * epoch
        lines.append({"kind": "step", "step": step, "epoch": float(epoch), **values})
        lines.append({"kind": "epoch", "step": step, "epoch": epoch, "seconds": 2.0, **values})
    lines.append({"kind": "knn", "step": 0, "epoch": 0, "backbone": 0.3, "projection": 0.2})
    lines.append({"kind": "knn", "step": 2500, "epoch": 250, "backbone": 0.8, "projection": 0.7})
    folder = write_run(tmp_path / "run", lines=lines)
    results = json.loads((folder / "results.json").read_text())
    results["training"] = {"views": 7}
    results["knn"]["details"] = {"backbone": {"confusion": [[1]] * 10, "top5": 0.9}}
    results["knn"]["provenance"] = {"seconds": 3.0, "packages": {"torch": "2"}}
    (folder / "results.json").write_text(json.dumps(results))
    found = reduced(folder)
    curve = found["curve"]
    assert len(curve["epoch"]) <= 101
    assert (curve["epoch"][0], curve["epoch"][-1]) == (1, 250)
    assert curve["seconds"][-1] == 500.0
    assert curve["loss"][0] == 1.33333
    assert curve["margin"][:2] == [None, 0.5]
    assert "other" not in curve
    assert found["knn"]["seconds"] == [0.0, 500.0]
    assert found["training"] == {"views": 7}
    assert found["evaluations"]["knn"]["details"] == {"backbone": {"top5": 0.9}}
    assert found["evaluations"]["knn"]["provenance"] == {"seconds": 3.0}
    assert found["settings"]["epochs"] == 4
    path = write_outcome(tmp_path, "a/b", found)
    assert json.loads(path.read_text()) == found
    assert path.stat().st_size < 100_000


def test_standings(plan, tmp_path):
    results, runs = tmp_path / "results", tmp_path / "runs"
    names = list(plan.every)
    for name in (*plan.candidates("dsf"), "table1/dsf", "table1/feature-avg"):
        put(plan, results, name)
    put(plan, results, "head/dsf", failure="the loss of step 3 is not finite")
    (results / "stray.json").write_text("{}")
    found = {item.name: item for item in standings(plan, names, results, runs)}
    assert found["table1/dsf"].state == "done"
    assert found["table1/dsf"].about.startswith("kNN 49.00, backbone 50.00, linear 52.00, paper's")
    assert found["table1/feature-avg"][1:3] == ("other", "its tuning is gone")
    assert found["head/dsf"].state == "failed"
    assert found["tuning/feature-avg/lr-0.03"].state == "not run"
    assert strangers(plan, results) == [results / "stray.json"]
    put(plan, results, "tuning/dsf/lr-0.12", rank=9)
    found = {item.name: item for item in standings(plan, names, results, runs)}
    assert found["table1/dsf"][1:3] == ("other", "optimiser.lr is 0.03 there, and 0.12 here")


@pytest.fixture
def with_transfer(tmp_path):
    transfer = {"of": ["head/dsf"], "data": ["pets:32", "dtd:32"], "budget": 0.5, "seconds": 90}
    return tiny_plan.load(tmp_path, transfers={"table2": transfer})


def test_numbers_of_fine_tuning(with_transfer, tmp_path):
    put(with_transfer, tmp_path, "table2/dsf/pets", rank=1)
    put(with_transfer, tmp_path, "table2/dsf/dtd", rank=1)
    outcome = read_outcome(tmp_path, "table2/dsf/pets")
    assert outcome.finetuned == pytest.approx(71)  # the mean over classes
    assert read_outcome(tmp_path, "table2/dsf/dtd").finetuned == pytest.approx(81)
    assert outcome.spent == 30.0
    assert math.isnan(outcome.seconds)
    assert math.isnan(outcome.knn)
    put(with_transfer, tmp_path, "head/dsf")
    trained = read_outcome(tmp_path, "head/dsf")
    assert trained.spent == trained.seconds == 2.0
    assert math.isnan(trained.finetuned)


def test_what_makes_fine_tuning_another(with_transfer, tmp_path):
    put(with_transfer, tmp_path, "table2/dsf/pets")
    outcome = read_outcome(tmp_path, "table2/dsf/pets")
    asked = configure(with_transfer, "table2/dsf/pets", tmp_path)
    assert asked.command == "dsf eval head/dsf finetune --data pets:32 --budget 0.5"
    assert difference(outcome, asked) is None
    longer = asked._replace(finetuning=asked.finetuning.model_copy(update={"budget": 1.0}))
    assert difference(outcome, longer) == "budget is 0.5 there, and 1.0 here"
    assert longer.command == "dsf eval head/dsf finetune --data pets:32"
    other = configure(with_transfer, "table2/dsf/pets", tmp_path, ["seed=7"])
    assert difference(outcome, other) == "seed is 0 there, and 7 here"


def test_standings_of_fine_tuning(with_transfer, tmp_path):
    results, runs = tmp_path / "results", tmp_path / "runs"
    name = "table2/dsf/pets"

    def standing():
        (found,) = standings(with_transfer, [name], results, runs)
        return found

    assert standing() == (name, "not run", "needs head/dsf", 1.5)
    partial = Partial(runs / name / "partial", {"name": "finetune"})
    partial.add({"learning_rate": 0.1}, 0.5)
    partial.add({"learning_rate": 0.2}, 0.25)
    assert standing()[1:3] == ("partial", "2 settings tried")
    put(with_transfer, results, name, rank=1)
    assert standing() == (name, "done", "fine-tuned 71.00", 0.5)
    put(with_transfer, results, name, failure="head/dsf failed")
    assert standing()[1:3] == ("failed", "head/dsf failed")


def test_estimates():
    cifar = load_plan("cifar10")
    seconds = estimated_seconds(cifar, "table1/dsf")
    assert seconds == pytest.approx(45 + 250 * 50_000 * 8 / 126_000 + 40)
    assert estimated_seconds(cifar, "table1/moco") == pytest.approx(seconds)
    imagenette = load_plan("imagenette")
    small, large = (estimated_seconds(imagenette, f"{part}/dsf") for part in ("table1", "large"))
    assert small == pytest.approx(40 + 100 * 9469 * 8 / 22_800 + 60)
    assert large - 100 == pytest.approx(2 * (224 / 128) ** 2 * (small - 100))
    assert estimated_seconds(imagenette, "table2/dsf/pets") == 70
