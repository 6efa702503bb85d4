import pytest
import tiny_plan
import yaml

from dsf.experiments import load_recipe
from dsf.experiments.paper.configuration import configure
from dsf.experiments.paper.plan import load_plan, plan_names

CIFAR = load_plan("cifar10")


def planned(name):
    """The settings of a run of the CIFAR-10 plan but for its tuning."""
    run = CIFAR.every[name]
    return load_recipe(CIFAR.methods[run.method].recipe, [*run.candidate, *run.overrides])


@pytest.mark.parametrize("name", CIFAR.every)
def test_every_run_is_valid(name):
    settings = planned(name)
    assert settings.data.name == CIFAR.data
    assert settings.batch_norm.splits == 8


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": {"a": {"method": "none"}}}, "runs.a.method: there is no method none"),
        ({"runs": {"a": {"method": "dsf", "evaluations": "all"}}}, "there are none named all"),
        ({"groups": {"table1": ["x"]}}, "groups.table1: there is no run x"),
        ({"methods": {"dsf": {"label": "DSF", "recipe": "no"}}}, "there is no recipe no"),
        ({"runs": {}}, "runs: "),
        ({"colour": "red"}, "colour: "),
    ],
)
def test_wrong_plans(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        tiny_plan.load(tmp_path, **changes)


def test_names_of_plans(tmp_path):
    assert plan_names() == ["cifar10"]
    with pytest.raises(ValueError, match="plan must be one of cifar10, or a .yaml file"):
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
