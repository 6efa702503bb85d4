"""A plan whose runs take seconds, and results that were never run."""

import math

import tiny
import yaml

from dsf.experiments.paper.plan import load_plan

OWN = [*tiny.SETTINGS, "epochs=1", "knn.k=20"]
METHODS = {
    "feature-avg": {
        "label": "Feature_avg",
        "recipe": "demo",
        "overrides": [*OWN, "loss.name=feature-average"],
        "grid": {"optimiser.lr": [0.03, 0.12]},
    },
    "dsf": {
        "label": "DSF",
        "recipe": "demo",
        "overrides": OWN,
        "grid": {"optimiser.lr": [0.03, 0.12]},
    },
}
RUNS = {
    "table1/dsf": {"method": "dsf", "overrides": ["epochs=2", "knn.every=1"]},
    "table1/feature-avg": {"method": "feature-avg", "overrides": ["epochs=2"]},
    "head/dsf": {"method": "dsf", "tuned": False, "overrides": ["head=mlp"]},
}


def content(**changes):
    """The plan as a YAML file would have it."""
    return {
        "name": "tiny",
        "title": "Tiny",
        "data": "embedded",
        "images": 96,
        "views_per_second": 100,
        "evaluations": {
            "tuning": {"names": ["knn-leave-one-out"]},
            "short": {"names": ["knn", "linear"], "seconds": 1},
        },
        "methods": METHODS,
        "tuning": {},
        "runs": RUNS,
        "groups": {"table1": ["table1/dsf", "table1/feature-avg"], "head": ["head/dsf"]},
    } | changes


def write(folder, **changes):
    """The plan's file."""
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    return path


def load(folder, **changes):
    return load_plan(str(write(folder, **changes)))


def made_up(plan, name, rank=0, failure=None):
    """A result that looks like one of a run; a higher rank is better."""
    from dsf.experiments.recipe import load_recipe

    run = plan.every[name]
    if run.finetuning is not None:
        return _made_up_finetuning(plan, name, rank, failure)
    method = plan.methods[run.method]
    chosen = run.candidate
    if run.tuned and method.grid:
        chosen = plan.every[plan.candidates(run.method)[0]].candidate
    settings = load_recipe(method.recipe, [*method.overrides, *chosen, *run.overrides])
    epochs = list(range(1, settings.epochs + 1))
    share = 0.5 + 0.01 * rank + 0.001 * settings.seed * (1 + rank)
    about = {"protocol": {"data": {"test_samples": 10_000}}, "provenance": {"seconds": 1.0}}
    evaluations = {
        "knn": about | {"backbone": share, "projection": share - 0.01},
        "linear": about | {"accuracy": share + 0.02},
        "corruption linear=linear-paper": {
            **about,
            "protocol": about["protocol"] | {"severities": [1, 2, 3, 4, 5]},
            "mce": 0.95 - share,
            "mce_of_severity_1": 0.9 - share,
            "details": {"linear": {"accuracy": share + 0.03}},
        },
    }
    left_out = {"knn leave_one_out=True": about | {"backbone": share - 0.002}}
    evaluations = left_out if run.candidate else evaluations | left_out
    curve = {
        "epoch": epochs,
        "seconds": [2.0 * epoch for epoch in epochs],
        "loss": [8 - math.log(epoch) for epoch in epochs],
        "margin": [0.1 * epoch for epoch in epochs],
    }
    if settings.loss.name == "dsf":
        for term in ("kl_log", "kl_bessel", "kl_cos", "negative_kl_cos"):
            curve[term] = [len(term) / epoch for epoch in epochs]
        for part in ("min", "mean", "max"):
            curve[f"kappa_{part}"] = [100.0 + epoch for epoch in epochs]
    found = {
        "format": 1,
        "run": name,
        "plan": plan.name,
        "command": f"dsf reproduce {name}",
        "train": f"dsf train {method.recipe}",
        "tuning": None,
        "settings": settings.model_dump(mode="json"),
        "environment": {"commit": "0123456789abcdef", "device": "none", "packages": {"torch": "2"}},
        "training": {
            "views": settings.epochs * 1e5 * settings.views.count,
            "device_seconds": 2.0 * settings.epochs,
            "peak_memory_bytes": 3 * 2**30,
        },
        "curve": curve,
        "knn": {
            "epoch": [0, settings.epochs],
            "seconds": [0.0, 2.0 * settings.epochs],
            "backbone": [0.3, share],
            "projection": [0.25, share],
        },
        "warnings": [],
        "evaluations": evaluations,
    }
    return found | ({"failure": failure, "evaluations": {}} if failure else {})


def _made_up_finetuning(plan, name, rank, failure):
    asked = plan.every[name].finetuning
    data = asked.data.partition(":")[0]
    metric = "mean per class" if data in ("pets", "aircraft", "caltech101") else "top-1"
    entry = {
        "protocol": {"metric": metric, "data": {"test_samples": 10_000}},
        "accuracy": 0.8 + 0.01 * rank,
        "mean_per_class": 0.7 + 0.01 * rank,
        "details": {"chosen": {"learning_rate": 0.01, "weight_decay": 0.0}},
        "provenance": {"seconds": 30.0},
    }
    found = made_up(plan, asked.of, rank) | {
        "run": name,
        "command": f"dsf reproduce {plan.address(name)}",
        "train": f"dsf eval {asked.of} finetune --data {asked.data}",
        "finetuning": asked.identity,
        "training": {},
        "curve": {},
        "knn": {},
        "evaluations": {f"finetune@{asked.data} budget={asked.budget:g}": entry},
    }
    return found | ({"failure": failure, "evaluations": {}} if failure else {})
