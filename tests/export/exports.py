"""Runs of seconds with the encoders that can be exported, and the code of their cards."""

import re

import tiny

from dsf.experiments import train

# Two steps each: enough that no tensor is as it was made.
SHORT = [
    "data.limit=32",
    "epochs=1",
    "views.count=2",
    "loss.queue=32",
    "batch_norm.splits=2",
    "knn.k=20",
]
TRANSFORMER = [
    "method=mocov3",
    "loss.queue=0",
    "head=mlp-bn",
    "predictor=mlp-bn",
    "views.size=32",
    "batch_norm.splits=1",
]
ENCODERS = {
    "small": ["encoder.name=resnet-small", "encoder.options={width: 4}"],
    "cifar": ["encoder.name=resnet18", "encoder.options={stem: cifar}"],
    "imagenet": ["encoder.name=resnet18", "encoder.options={}", "views.size=32"],
    "average": ["encoder.name=resnet18", "encoder.options={avg_down: true}", "views.size=32"],
    "vit": ["encoder.name=mocov3-vit-small", "encoder.options={depth: 2}", *TRANSFORMER],
    "timm": [
        "encoder.name=timm/resnet10t",
        "encoder.options={}",
        "views.size=32",
        "batch_norm.splits=1",
    ],
    "torchvision": [
        "encoder.name=torchvision/shufflenet_v2_x0_5",
        "encoder.options={}",
        "views.size=32",
    ],
}


def make_run(kind, folder):
    return train(tiny.settings(*SHORT, *ENCODERS[kind]), folder / kind, show=False)


def blocks(card):
    """The Python code of a card."""
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


def run_block(code):
    """What a block of code leaves: its names."""
    names = {}
    exec(code, names)
    return names
