import dataclasses

import pytest
import torch

from dsf.data import corruptions
from dsf.data.sets.imagenette import CLASSES
from dsf.data.sets.wordnet import readable
from dsf.evaluation import Corruption, LinearFast, LinearPaper
from dsf.evaluation.robustness import LinearModel

TYPES = ("contrast", "gaussian_noise")


@pytest.mark.parametrize("linear", [LinearFast(), LinearPaper(epochs=4, learning_rate=1.0)])
def test_the_clean_model_is_tested_on_corrupted_images(make_subject, linear):
    subject = make_subject(train=96)
    found = Corruption(linear, TYPES, (1, 5)).evaluate(subject, seed=2)
    clean = linear.evaluate(subject, seed=2)
    assert found.numbers["clean_error"] == pytest.approx(1 - clean.numbers["accuracy"])
    for name, value in clean.state.items():
        assert torch.equal(found.state[name], value)
    predict = LinearModel(subject, clean)
    test = subject.task.test
    for name in TYPES:
        errors = []
        for severity in (1, 5):
            worse = corruptions.corrupt(test.source, name, severity, 2)
            errors.append((predict(worse) != test.labels).double().mean().item())
        assert found.details["errors"][name] == pytest.approx(errors)
    mce = sum(found.details["by_type"].values()) / 2
    assert found.numbers["mce"] == pytest.approx(mce)
    assert found.numbers["excess"] == pytest.approx(mce - found.numbers["clean_error"])


def test_small_images_are_corrupted_as_they_are_stored(make_subject, monkeypatch):
    from dsf.evaluation import corruption

    seen = []
    corrupt = corruption.corrupt

    def watched(images, *arguments):
        seen.append(tuple(images.shape[1:]))
        return corrupt(images, *arguments)

    monkeypatch.setattr(corruption, "corrupt", watched)
    subject = make_subject(size=16)
    larger = type(subject)(subject.encoder, subject.task, size=20)
    Corruption(types=("contrast",), severities=(1,)).evaluate(larger)
    assert set(seen) == {(3, 16, 16)}


def test_all_types_by_default(make_subject):
    described = Corruption(published="/some/where").describe(make_subject(), 0)
    assert described["types"] == list(corruptions.CORRUPTIONS)
    assert len(described["types"]) == 18
    assert described["linear"]["name"] == "linear"
    assert Corruption(published="/some/where").changes(Corruption()) == "published"


def test_missing_files(make_subject, tmp_path):
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        Corruption(types=TYPES, published=str(tmp_path)).evaluate(make_subject())
    with pytest.raises(ValueError, match="corruption must be one of .*; got 'rain'"):
        Corruption(types=("rain",)).evaluate(make_subject())


def test_published_folders_of_wordnet_numbers(make_subject, tmp_path):
    """A data set knows the words for its classes, ImageNet-C their numbers."""
    usual = make_subject()
    task = dataclasses.replace(usual.task, classes=10, names=tuple(readable(CLASSES)))
    subject = type(usual)(usual.encoder, task)
    evaluation = Corruption(types=("contrast",), severities=(2,), published=str(tmp_path))
    for number in CLASSES[:9]:
        (tmp_path / "contrast" / "2" / number).mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="lacks 1 of 10 classes, the first n03888257"):
        evaluation.check(subject)
    (tmp_path / "contrast" / "2" / CLASSES[9]).mkdir()
    evaluation.check(subject)
