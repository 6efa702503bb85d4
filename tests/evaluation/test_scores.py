import json
import math

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix

from dsf.evaluation import score


def test_agrees_with_scikit_learn():
    labels, predictions = torch.randint(7, (300,)), torch.randint(7, (300,))
    found = score(predictions, labels, 7)
    assert found.confusion.tolist() == confusion_matrix(labels, predictions).tolist()
    expected = balanced_accuracy_score(labels, predictions)
    assert found.mean_per_class == pytest.approx(expected)
    assert found.accuracy == (labels == predictions).double().mean().item()
    assert found.by("top-1") == found.accuracy
    assert found.by("mean per class") == found.mean_per_class


def test_classes_without_samples_do_not_count():
    found = score(torch.tensor([0, 0, 3]), torch.tensor([0, 0, 1]), 4)
    assert found.mean_per_class == 0.5
    assert found.details()["per_class"] == [1.0, 0.0, None, None]
    assert math.isnan(found.per_class[2])
    json.dumps(found.details(), allow_nan=False)


def test_what_is_no_class_is_wrong():
    found = score(torch.tensor([-1, 1, 9]), torch.tensor([0, 1, 1]), 2)
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.confusion.tolist() == [[0, 0], [0, 1]]


def test_large_matrices_are_left_out_of_the_details():
    labels = torch.arange(300)
    assert "confusion" not in score(labels, labels, 300).details()
    assert len(score(labels, labels, 300).confusion) == 300
    assert len(score(labels[:256], labels[:256], 256).details()["confusion"]) == 256


def test_classes_may_be_many():
    """Their confusion alone would take 75 GiB."""
    labels = torch.arange(100_000)
    found = score(labels.clone().fill_(7), labels, 100_000)
    assert found.accuracy == found.mean_per_class == pytest.approx(1e-5)
    assert list(found.details()) == ["per_class"]
