"""Numbers in prose are those of the files that it links to."""

from itertools import pairwise
from statistics import median

import pytest
from blocks import ROOT

from dsf.experiments.paper.outcome import Outcome, read_outcome
from dsf.experiments.paper.plan import load_plan
from dsf.files import read_json

RESULTS = ROOT / "results"
PLAN = load_plan("cifar10")
IMAGENETTE = load_plan("imagenette")


def says(page, text):
    return text in (ROOT / page).read_text(encoding="utf-8")


def outcome(name, plan=PLAN):
    return read_outcome(RESULTS / plan.name, name)


def best(method):
    return max(outcome(name).score for name in PLAN.candidates(method))


def test_logits_in_blocks():
    rows = read_json(RESULTS / "benchmarks" / "loss.json")["streaming"]
    stored, blocks, kernel = (row for row in rows if row["negatives"] == "queue")
    assert says(
        "docs/howto/memory.md",
        f"take {blocks['eager_MiB']:.0f} MiB instead of {stored['eager_MiB']:,.0f} and "
        f"{blocks['eager_times_stored']:.2f} times as long",
    )
    assert says(
        "docs/math.md",
        f"take {kernel['eager_MiB']:.0f} MiB instead of {stored['eager_MiB']:,.0f} and "
        f"{kernel['eager_times_stored']:.2f} of the time",
    )


def test_compiled_kernels_of_the_loss():
    report = read_json(RESULTS / "benchmarks" / "loss.json")
    stored, _, kernel = (row for row in report["streaming"] if row["negatives"] == "queue")
    sizes = f"{kernel['compiled_MiB']:.0f} MiB instead of {stored['compiled_MiB']:,.0f} and "
    share = f"{kernel['compiled_times_stored']:.2f} of the time"
    assert says("README.md", sizes + share)
    assert says("docs/math.md", sizes + share)
    ours, theirs, slow = (
        next(row for row in report["losses"] if row["loss"] == loss)["graph_ms"]
        for loss in ("DSF", "FeatureAverage", "LossAverage")
    )
    text = f"{ours:.3f} ms for DSF, {theirs:.3f} ms for FeatureAverage and {slow:.3f} ms for Loss"
    assert says("README.md", text)


def test_a_step():
    ours, ready, loose, eager, plain = read_json(RESULTS / "benchmarks" / "step.json")["steps"]
    time, views = ours["milliseconds"], ours["milliseconds"] - ready["milliseconds"]
    whole = f"{time:.1f} ms and {ours['gibibytes']:.1f} GiB; {views:.1f} ms of it is making the"
    fp32 = f"{plain['milliseconds']:.0f} ms"
    assert says("README.md", whole)
    assert says("README.md", f"{fp32} and {plain['gibibytes']:.1f} GiB")
    assert says(
        "docs/design.md", f"takes {time:.1f} ms, of which making the views is {views:.1f} ms"
    )
    assert says("docs/design.md", f"graph it takes {loose['milliseconds']:.1f} ms")
    assert says("docs/design.md", f"{eager['milliseconds']:.0f} ms, and in plain eager fp32 {fp32}")


def test_a_step_of_a_transformer():
    report = read_json(RESULTS / "benchmarks" / "step-vit.json")
    ours, times = report["steps"][0]["milliseconds"], report["steps"][0]["times"]
    hours = 100 * (126_689 // 128) * ours / 3.6e6
    assert says("README.md", f"[took {ours:.0f} ms](results/benchmarks/step-vit.json)")
    assert says("README.md", f"{times:.1f} times as fast as eager fp32")
    assert says("README.md", f"would take {hours:.1f} hours")
    assert says("docs/design.md", f"**{hours:.1f} hours on one H200**")
    assert says("docs/design.md", f"{100 * report['products']['share']:.1f} % of the speed")


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_knn_is_by_the_projection_as_in_the_table_beside_it(page):
    found = read_json(RESULTS / "runs" / "cifar10-dsf-60" / "results.json")
    assert says(page, f"{100 * found['knn']['projection']:.1f} % kNN")
    assert says(page, f"in {found['training']['device_seconds']:.0f} s")


def test_the_learning_rate():
    low, middle, high = (outcome(name).score for name in PLAN.candidates("dsf"))
    sixty = [
        Outcome({"evaluations": read_json(RESULTS / "runs" / name / "results.json")}).knn_backbone
        for name in ("cifar10-dsf-60", "cifar10-dsf-60-lr0.06")
    ]
    assert says(
        "docs/results-notes.md",
        "by kNN of the backbone's features DSF with 0.12 is, after 30 epochs, "
        f"{high - middle:.1f} points ahead of the authors' 0.06, and {high - low:.1f} ahead of "
        f"0.03; after 60 epochs it has {sixty[0]:.1f} against {sixty[1]:.1f} %",
    )
    for method in ("dsf", "feature-avg", "loss-avg"):
        winner = max(PLAN.candidates(method), key=lambda name: outcome(name).score)
        rates = PLAN.methods[method].grid["optimiser.lr"]
        assert outcome(winner).setting("optimiser.lr") == max(rates) == 0.12


def test_short_runs():
    loss_avg, feature_avg, dsf = map(best, ("loss-avg", "feature-avg", "dsf"))
    assert loss_avg > dsf > feature_avg
    assert says("docs/results-notes.md", f"({loss_avg:.1f} against {dsf:.1f} %, leave-one-out kNN")
    assert says("docs/results-notes.md", f"The best Feature_avg, {feature_avg:.1f} %, is not ahead")


def test_pairs_of_seeds_are_of_one_commit():
    commits = [
        {
            outcome(f"seeds/{method}-s{seed}").content["environment"]["commit"]
            for method in ("dsf", "feature-avg")
        }
        for seed in range(3)
    ]
    assert [len(pair) for pair in commits] == [1, 1, 1]
    assert commits[0] != commits[1] == commits[2]
    assert says("docs/results-notes.md", "seeds 1 and 2 are of a later one than seed 0")


@pytest.mark.parametrize("page", ["docs/start.md", "src/dsf/experiments/recipes/cifar10-dsf.yaml"])
def test_what_250_epochs_reach(page):
    found = outcome("table1/dsf")
    text = (ROOT / page).read_text(encoding="utf-8")
    for value in (found.knn, found.linear_paper):
        assert f"{value:.2f} %" in text


def test_dsf_starts_later():
    lead = {"projection": [], "backbone": []}
    pairs = [(f"seeds/dsf-s{seed}", f"seeds/feature-avg-s{seed}") for seed in range(3)]
    for names in [*pairs, ("table1/dsf", "table1/feature-avg")]:
        for part, values in lead.items():
            dsf, other = (dict(outcome(name).curve(part, part="knn"))[10] for name in names)
            values.append(100 * (other - dsf))
    assert {round(value) for value in lead["projection"]} == {3, 4}
    assert {round(value) for value in lead["backbone"]} == {1, 2}
    text = "3 to 4 points of kNN behind Feature_avg at epoch 10 (by the backbone's features 1 to 2)"
    assert says("docs/results-notes.md", text)


def test_imagenette():
    names = ("feature-avg", "dsf")
    theirs, ours = (outcome(f"table1/{name}", IMAGENETTE) for name in names)
    clean = [100 - it.linear_paper for it in (ours, theirs)]
    scores = [
        [outcome(name, IMAGENETTE).score for name in IMAGENETTE.candidates(method)]
        for method in names
    ]
    behind = [max(values) - values[-1] for values in scores]
    tuned = [
        [outcome(f"table2/{name}/{data}", IMAGENETTE).finetuned for name in names]
        for data in ("caltech101", "cifar10", "pets")
    ]
    for text in (
        f"{theirs.knn:.1f} against {ours.knn:.1f} % kNN, "
        f"{theirs.linear_paper:.1f} against {ours.linear_paper:.1f} % linear",
        f"{theirs.knn_backbone:.1f} against {ours.knn_backbone:.1f} % kNN",
        f"({ours.linear_fast:.1f} %, `fast`)",
        f"{ours.mce:.1f} against {theirs.mce:.1f} % at severity 1 and {ours.mce_all:.1f} against "
        f"{theirs.mce_all:.1f} % over all",
        "{:.1f} against {:.1f} %.".format(*clean),
        "Caltech-101 ({:.1f} against {:.1f} %)".format(*tuned[0]),
        "CIFAR-10 ({:.1f} against {:.1f} %)".format(*tuned[1]),
        "Pets ({:.1f} and {:.1f} %)".format(*tuned[2]),
        "is {:.1f} and {:.1f} points behind it after 15 epochs".format(*behind),
    ):
        assert says("docs/results-notes.md", text), text
    assert [values.index(max(values)) for values in scores] == [2, 2]  # the second highest rate


def test_dsf_on_imagenette_costs_what_feature_averaging_does():
    clocks = [
        [seconds for _, seconds in outcome(f"table1/{name}", IMAGENETTE).curve("seconds")]
        for name in ("dsf", "feature-avg")
    ]
    epochs = [[after - before for before, after in pairwise(clock)] for clock in clocks]
    usual = [median(seconds) for seconds in epochs]
    assert [round(seconds, 1) for seconds in usual] == [3.3, 3.3]
    assert says("docs/results-notes.md", "an epoch takes 3.3 s for both")
    lost = sum(seconds - usual[0] for seconds in epochs[0])
    spent = outcome("table1/dsf", IMAGENETTE).seconds
    assert says("docs/results-notes.md", f"DSF's {spent:.0f} s hold {lost:.0f} in which other runs")
