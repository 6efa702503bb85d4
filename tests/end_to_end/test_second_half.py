"""The paper's second half on small files of the real formats: from pictures to tables and figures.

Everything is as the plans have it but for the sizes: fewer and smaller images, a narrow
transformer, one epoch, one step of fine-tuning a setting.
"""

import math

import pytest
import yaml
from tiny_sets import prepare_sets

from dsf.cli import main
from dsf.experiments.paper import plan as plans
from dsf.experiments.paper.outcome import read_outcome
from dsf.experiments.paper.plan import load_plan

SMALL = [
    "data.size=32",
    "views.size=16",
    "batch_size=8",
    "epochs=1",
    "schedule.warmup_epochs=0.5",
    "encoder.options={embed_dim: 24, depth: 2, num_heads: 3}",
    "hidden=32",
    "dimension=16",
    "knn={every: 0, k: 10}",
    "device=cpu",
]
SETS = {
    "imagenet100": ["imagenet100", "cifar10", "cifar100", "pets", "aircraft", "dtd", "food101"],
    "imagenette": ["imagenette", "pets", "caltech101", "cifar10"],
}
METHODS = ["mocov3", "loss-avg", "feature-avg", "dsf"]


def small_plan(name, folder):
    """The plan in a file, with small settings, 32 pixels in place of 256 and the least budget."""
    text = plans._FOLDER.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text.replace(":256", ":32"))
    content["transfers"]["table2"]["budget"] = 5e-5
    for run in content["runs"].values():
        run["overrides"] += SMALL
    for method in content["methods"].values():
        if "grid" in method:
            method |= {"grid": {"optimiser.base_lr": [0.0005, 0.005]}, "tuning": SMALL}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imagenet100", "imagenette"])
def test_from_pictures_to_the_document(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    sizes = {data: None if data.startswith("cifar") else 32 for data in SETS[name]}
    prepare_sets(tmp_path / "data", monkeypatch, sizes)
    path = small_plan(name, tmp_path)
    plan = load_plan(str(path))
    options = ["--plan", str(path), "--results", "trial"]
    parts = [part for part in ("tuning", "table1", "table2") if part in plan.parts]
    assert main(["reproduce", *parts, *options]) == 0
    outcomes = {run: read_outcome(tmp_path / "trial", run) for run in plan.select(parts)}
    for run, outcome in outcomes.items():
        assert outcome.failure is None, run
    for method in METHODS:
        outcome = outcomes[f"table1/{method}"]
        for value in (outcome.knn, outcome.linear_fast, outcome.linear_paper, outcome.mce):
            assert 0 <= value <= 100
        corruption = outcome.content["evaluations"]["corruption linear=linear-paper"]
        assert len(corruption["details"]["by_type"]) == 18
        assert outcome.curve("margin")
        assert outcome.views > 0
        for data in plan.transfers["table2"].data_names:
            assert 0 <= outcomes[f"table2/{method}/{data}"].finetuned <= 100
    capsys.readouterr()
    assert main(["reproduce", "--list", *options]) == 0
    done = len(outcomes)
    assert f"{done} of {len(plan.every)} done" in capsys.readouterr().out
    assert main(["reproduce", "--render", *options, "-o", "document"]) == 0
    text = (tmp_path / "document/results.md").read_text()
    for part, usual in (("table1", "Table 1: equal resources"), ("table2", "Table 2: transfer")):
        section = text.partition(f"### {plan.titles.get(part, usual)}\n")[2].partition("\n###")[0]
        assert "| DSF | " in section
        assert "not run" not in section
        assert "Partial" not in section
    if "large" in plan.parts:
        section = text.partition(f"### {plan.titles['large']}\n")[2].partition("\n###")[0]
        assert "**Not run yet.**" in section
    for figure in ("margin", "margins", "kappa-training", "kl-positive"):
        assert (tmp_path / f"document/figures/{name}/{figure}.svg").is_file()
    before = (tmp_path / "document/results.md").read_bytes()
    assert main(["reproduce", *parts, *options]) == 0  # nothing is left to do
    assert main(["reproduce", "--render", *options, "-o", "document"]) == 0
    assert (tmp_path / "document/results.md").read_bytes() == before
    assert math.isnan(outcomes["table1/dsf"].finetuned)
