"""Runs of seconds: few images, small views, a narrow encoder."""

import json
import os
import signal

from safetensors.torch import load_file

from dsf.experiments import load_recipe
from dsf.training.loop import Loop

# 96 images in batches of 16: 6 steps an epoch, 12 in all.
SETTINGS = [
    "data.limit=96",
    "epochs=2",
    "batch_size=16",
    "views.count=4",
    "views.size=8",
    "views.options={}",
    "optimiser.lr=0.06",
    "encoder.name=resnet-small",
    "encoder.options={width: 4}",
    "batch_norm.splits=4",
    "dimension=8",
    "loss.queue=32",
    "log_every=4",
    "knn.every=0",
    "device=cpu",
]
MOCOV3 = ["method=mocov3", "head=mlp-bn", "predictor=mlp-bn", "loss.queue=0"]
# What a clock measured is never the same.
TIMES = ("images_per_s", "seconds")


def settings(*overrides):
    return load_recipe("demo", [*SETTINGS, *overrides])


def tensors(folder):
    """The tensors of the last checkpoint."""
    last = max((folder / "checkpoints").glob("step-????????"))
    return load_file(last / "tensors.safetensors")


def lines(folder, kind=None):
    """The lines of metrics without times."""
    text = (folder / "metrics.jsonl").read_text()
    found = [json.loads(line) for line in text.splitlines()]
    return [
        {name: value for name, value in line.items() if name not in TIMES}
        for line in found
        if kind in (None, line["kind"])
    ]


def same(one, other):
    """Whether two runs ended in the same tensors, bit by bit, and the same metrics."""
    a, b = tensors(one), tensors(other)
    assert a.keys() == b.keys()
    different = [name for name in a if not a[name].equal(b[name])]
    assert different == []
    assert lines(one) == lines(other)
    return True


def stop_after(monkeypatch, number):
    """Let a run ask itself to stop in a step."""
    original = Loop._train_step

    def step(self, *arguments, **options):
        original(self, *arguments, **options)
        if self.step + 1 == number:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Loop, "_train_step", step)
