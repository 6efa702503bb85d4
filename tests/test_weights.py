"""The encoders that come with the repository are those of their results, and know CIFAR-10."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

import dsf
from dsf.data import load
from dsf.experiments.paper.outcome import read_outcome
from dsf.files import read_json

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "weights").rglob("config.json"))


def name(folder):
    return folder.relative_to(ROOT / "weights").as_posix()


def outcome(folder):
    plan, _, run = name(folder).partition("/")
    return read_outcome(ROOT / "results" / plan, run)


def test_there_are_some():
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_they_are_of_the_result(folder):
    assert (
        read_json(folder / "config.json")["dsf"]["checkpoint_sha256"] in outcome(folder).checkpoints
    )


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_what_is_said_of_them(folder):
    found = outcome(folder)
    text = (ROOT / "weights" / "README.md").read_text(encoding="utf-8")
    linear = found.content["evaluations"]["linear"]["accuracy"]
    assert f"`{name(folder)}`" in text
    assert f"kNN {found.knn_backbone:.2f} %, linear {100 * linear:.2f} %" in text


def test_what_the_readme_says_of_them():
    found = outcome(ROOT / "weights" / "cifar10" / "table1" / "dsf")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"whose features have {found.knn_backbone:.2f} % kNN" in text


def test_classes_lie_apart():
    """A nearest class mean of 600 labelled images; by chance it would be right in a tenth."""
    encoder = dsf.from_pretrained(ROOT / "weights" / "cifar10" / "table1" / "dsf")
    mean, std = (
        torch.tensor(encoder.pretrained_cfg[key])[:, None, None] for key in ("mean", "std")
    )

    def features(split, count):
        pixels = split.images("cpu")[:count]
        with torch.no_grad():
            return normalize(encoder((pixels / 255 - mean) / std), dim=1)

    train, test = load("embedded", "train"), load("embedded", "test")
    labels, wanted = train.labels("cpu"), test.labels("cpu")
    known = features(train, 600)
    centres = torch.stack([known[labels[:600] == label].mean(0) for label in range(10)])
    guessed = (features(test, 200) @ centres.T).argmax(1)
    assert (guessed == wanted[:200]).float().mean() > 0.8
