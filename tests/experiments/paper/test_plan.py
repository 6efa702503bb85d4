from pathlib import Path
from statistics import fmean

import pytest
import tiny_plan
import yaml

from dsf.experiments import describe, load_recipe
from dsf.experiments.paper.configuration import configure
from dsf.experiments.paper.listing import estimated_seconds
from dsf.experiments.paper.outcome import read_outcome
from dsf.experiments.paper.plan import load_plan, plan_names

CIFAR, HUNDRED, IMAGENETTE = (load_plan(name) for name in plan_names())
RESULTS = Path(__file__).parents[3] / "results"
HALF_HOURS = ("tuning", "table1", "table2")


def planned(name, plan=CIFAR):
    """The settings of a run but for its tuning."""
    run = plan.every[name]
    if run.finetuning is not None:
        return planned(run.finetuning.of, plan)
    method = plan.methods[run.method]
    return load_recipe(method.recipe, [*method.overrides, *run.candidate, *run.overrides])


@pytest.mark.parametrize("name", CIFAR.every)
def test_every_run_is_valid(name):
    settings = planned(name)
    assert settings.data.name == CIFAR.data
    assert settings.batch_norm.splits == 8


@pytest.mark.parametrize("plan", [CIFAR, HUNDRED, IMAGENETTE], ids=lambda plan: plan.name)
def test_recipes_have_the_settings_that_won_and_say_what_they_reach(plan):
    for name in plan.groups["table1"]:
        recipe = plan.methods[plan.every[name].method].recipe
        outcome = read_outcome(RESULTS / plan.name, name)
        if outcome is None:
            assert describe(recipe).reaches == "not measured yet."
            continue
        settings = load_recipe(recipe)
        rate = "lr" if settings.optimiser.base_lr is None else "base_lr"
        assert getattr(settings.optimiser, rate) == outcome.setting(f"optimiser.{rate}"), recipe
        assert settings.loss.temperature == outcome.setting("loss.temperature"), recipe
        numbers = f"kNN {outcome.knn:.2f} %, linear {outcome.linear_paper:.2f} %"
        assert describe(recipe).reaches.startswith(numbers)


@pytest.mark.parametrize("plan", [HUNDRED, IMAGENETTE], ids=lambda plan: plan.name)
def test_every_run_of_transformers_is_valid(plan):
    for name in plan.every:
        settings = planned(name, plan)
        assert settings.data.name == plan.data
        assert settings.data.size == 256
        assert settings.method == "mocov3"
        assert settings.encoder.name == "mocov3-vit-small"
        assert settings.batch_size * settings.views.count == 1024
        assert settings.loss.temperature == (1.0 if settings.loss.name == "dsf" else 0.2)


def test_imagenet_100_is_as_the_authors_have_it():
    for name in HUNDRED.groups["table1"]:
        settings, run = planned(name, HUNDRED), HUNDRED.every[name]
        two = run.method == "mocov3"
        assert settings.views.count == (2 if two else 8)
        assert settings.epochs == run.published.epochs == (300 if two else 100)
        assert settings.views.size == 224
        assert settings.optimiser.lr == pytest.approx(0.005 * settings.batch_size / 256)
        assert "corruption" in HUNDRED.evaluations[run.evaluations].names


def test_imagenette_is_at_equal_views():
    every = {name: planned(name, IMAGENETTE) for name in IMAGENETTE.every}
    for part, views in (("table1", 800), ("tuning", 120)):
        names = IMAGENETTE.parts[part]
        assert {every[name].epochs * every[name].views.count for name in names} == {views}
        assert {every[name].schedule.warmup_epochs / every[name].epochs for name in names} == {0.15}
        assert {every[name].views.size for name in names} == {128}
    grids = [method.grid for method in IMAGENETTE.methods.values()]
    assert all(grid == grids[0] for grid in grids)
    assert len(IMAGENETTE.candidates("dsf")) == 4
    rates = [every[name].optimiser.lr for name in IMAGENETTE.candidates("mocov3")]
    assert rates == pytest.approx([0.0003, 0.001, 0.003, 0.01])  # for 512 images
    assert {every[name].knn.every for name in IMAGENETTE.parts["tuning"]} == {0}
    for name in IMAGENETTE.groups["large"]:
        assert (every[name].views.size, every[name].epochs) == (224, 200)


def test_imagenette_fits_into_sittings_of_half_an_hour():
    minutes = {
        part: sum(estimated_seconds(IMAGENETTE, name) for name in IMAGENETTE.parts[part]) / 60
        for part in HALF_HOURS
    }
    assert 60 < sum(minutes.values()) < 75
    assert minutes["tuning"] < 28
    two_methods = (minutes["table1"] + minutes["table2"]) / 2
    assert two_methods < 28


@pytest.mark.parametrize("name", CIFAR.groups["table1"])
def test_table_1_is_at_equal_resources(name):
    settings = planned(name)
    assert settings.batch_size * settings.views.count == 2048
    assert settings.epochs * settings.views.count == 2000
    assert settings.head == "mlp-bn"
    assert settings.seed == 0
    assert CIFAR.every[name].tuned


def test_convergence_and_head_see_as_many_views_with_moco():
    for group, lengths in (
        ("convergence", {480, 1000, 2000}),
        ("head", {480}),
        ("head-long", {2000}),
    ):
        found = {planned(name).epochs * planned(name).views.count for name in CIFAR.groups[group]}
        assert found == lengths
    assert {planned(name).head for name in CIFAR.select(["head", "head-long"])} == {"mlp"}


def test_views_at_equal_time_are_as_many():
    names = CIFAR.groups["views-equal"]
    assert {planned(name).epochs * planned(name).views.count for name in names} == {320}
    assert {planned(name).views.count for name in CIFAR.groups["views"]} == {2, 4, 8, 16}


def test_no_two_runs_are_the_same():
    """Where the tuning is the same and the rest too, it must be one run in two groups."""
    seen = {}
    for name, run in CIFAR.every.items():
        settings = planned(name).model_dump_json(exclude={"knn", "recipe"})
        grid = CIFAR.methods[run.method].grid
        told = tuple(word for word in run.overrides if word.partition("=")[0] in grid)
        key = (settings, run.tuned and (run.method, told))
        assert key not in seen, f"{name} is {seen.get(key)}"
        seen[key] = name


def test_ablations_change_what_they_say():
    base = planned(CIFAR.groups["ablation"][0]).model_dump()
    for name in CIFAR.groups["ablation"][1:]:
        changed = planned(name).model_dump()
        different = {key for key in base if base[key] != changed[key]}
        assert different == {"loss", "knn"}
        assert changed["epochs"] == 60


def test_candidates():
    assert len(CIFAR.candidates("dsf")) == 3
    assert len(CIFAR.candidates("feature-avg")) == len(CIFAR.candidates("moco")) == 9
    settings = planned("tuning/feature-avg/lr-0.12-temperature-0.5")
    assert (settings.optimiser.lr, settings.loss.temperature) == (0.12, 0.5)
    assert (settings.epochs, settings.knn.every) == (30, 0)


def test_selection():
    assert CIFAR.select(["table1/dsf", "table1"]) == list(CIFAR.groups["table1"])
    assert CIFAR.select(["tuning/dsf/"]) == CIFAR.candidates("dsf")
    assert len(CIFAR.select(["tuning"])) == 30
    assert CIFAR.select(["all"]) == list(CIFAR.every)
    assert CIFAR.select([]) == []
    with pytest.raises(ValueError, match="got 'table2': did you mean table1?"):
        CIFAR.select(["table2"])


def test_the_paper_s_numbers():
    """As its tables print them."""
    table = [
        CIFAR.every[f"table1/{name}"].published for name in ("moco", "loss-avg", "feature-avg")
    ]
    assert [(row.knn, row.linear, row.mce) for row in table] == [
        (88.44, 88.10, 19.03),
        (88.28, 88.58, 19.90),
        (87.47, 88.02, 19.80),
    ]
    assert CIFAR.every["table1/dsf"].published.mce == 16.20
    table = [HUNDRED.every[f"table1/{name}"].published for name in HUNDRED.methods]
    assert [(row.knn, row.linear, row.mce) for row in table] == [
        (74.08, 83.42, 36.67),
        (76.62, 84.06, 38.27),
        (76.94, 83.82, 39.42),
        (79.00, 85.80, 33.15),
    ]
    averages = [
        fmean(HUNDRED.transfers["table2"].published[f"table1/{name}"].values())
        for name in HUNDRED.methods
    ]
    assert averages == pytest.approx([73.70, 73.45, 72.93, 74.62], abs=0.01)  # as printed
    published = HUNDRED.every["table2/dsf/aircraft"].published
    assert published.finetune == 49.49
    assert HUNDRED.every["table2/dsf/food101"].published.finetune is None
    other = IMAGENETTE.every["large/mocov3"].published
    assert (other.knn_backbone, other.linear, other.by) == (82.6, 84.7, "stable-pretraining")


def test_transfers_are_runs_of_their_own():
    assert len(HUNDRED.select(["table2"])) == 4 * 6
    run = IMAGENETTE.every["table2/dsf/pets"]
    assert run.finetuning.identity == {"of": "table1/dsf", "data": "pets:256", "budget": 0.02}
    assert (run.method, IMAGENETTE.label("table2/dsf/pets")) == ("dsf", "DSF")
    budgets = {IMAGENETTE.every[name].finetuning.budget for name in IMAGENETTE.parts["table2"]}
    assert budgets == {0.02}
    assert list(IMAGENETTE.parts) == ["tuning", "table1", "large", "table2"]


def test_addresses():
    assert CIFAR.address("table1/dsf") == "table1/dsf"
    assert IMAGENETTE.address("table1/dsf") == "imagenette/table1/dsf"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": {"a": {"method": "none"}}}, "runs.a.method: there is no method none"),
        ({"runs": {"a": {"method": "dsf", "evaluations": "all"}}}, "there are none named all"),
        ({"groups": {"table1": ["x"]}}, "groups.table1: there is no run x"),
        ({"methods": {"dsf": {"label": "DSF", "recipe": "no"}}}, "there is no recipe no"),
        ({"runs": {}}, "runs: "),
        ({"transfers": {"t": {"of": ["x"], "data": ["pets"]}}}, "transfers.t: there is no run x"),
        ({"transfers": {"t": {"of": ["table1/dsf"], "data": []}}}, "transfers.t.data: "),
        (
            {"transfers": {"t": {"of": ["table1/dsf", "head/dsf"], "data": ["pets"]}}},
            "transfers.t: two runs would have one name; got .'t/dsf/pets', 't/dsf/pets'.",
        ),
        (
            {"transfers": {"t": {"of": ["table1/dsf"], "data": ["pets"], "budget": 2}}},
            "transfers.t.budget: ",
        ),
        (
            {
                "transfers": {
                    "t": {
                        "of": ["table1/dsf"],
                        "data": ["pets:64"],
                        "published": {"table1/dsf": {"dtd": 1.0}},
                    }
                }
            },
            "transfers.t.published: there is no data set dtd",
        ),
        ({"remarks": {"tabel1": "!"}}, "remarks.tabel1: there is no group tabel1"),
        ({"colour": "red"}, "colour: "),
    ],
)
def test_wrong_plans(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        tiny_plan.load(tmp_path, **changes)


def test_names_of_plans(tmp_path):
    assert plan_names() == ["cifar10", "imagenet100", "imagenette"]
    with pytest.raises(
        ValueError, match="plan must be one of cifar10, imagenet100, imagenette, or a .yaml file"
    ):
        load_plan("mnist")
    path = tmp_path / "bad.yaml"
    path.write_text("a: [")
    with pytest.raises(ValueError, match="is not YAML"):
        load_plan(str(path))


def test_order_of_overrides(tmp_path):
    """Method, tuning, run, command: the last wins."""
    runs = {"a": {"method": "dsf", "overrides": ["optimiser.lr=0.5", "epochs=3"], "tuned": False}}
    plan = tiny_plan.load(tmp_path, runs=runs, groups={})
    asked = configure(plan, "a", tmp_path)
    assert (asked.settings.optimiser.lr, asked.settings.epochs) == (0.5, 3)
    assert asked.command.count("epochs=") == 1
    assert configure(plan, "a", tmp_path, ["epochs=7"]).settings.epochs == 7


def test_a_plan_is_a_file_that_yaml_reads(tmp_path):
    assert yaml.safe_load(tiny_plan.write(tmp_path).read_text())["name"] == "tiny"
