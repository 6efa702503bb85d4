import json
import math
from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from dsf.evaluation import KNN, LabelledImages, Subject, Task, knn

MODULE = import_module("dsf.evaluation.knn")  # the package's attribute of that name is a function


def plainly(train, train_labels, test, k, temperature, classes):
    """Votes as the definition says it, one neighbour at a time."""
    votes = torch.zeros(len(test), classes, dtype=torch.float64)
    for row, query in enumerate(test.double()):
        cosine = torch.nn.functional.cosine_similarity(query[None], train.double(), dim=1)
        for index in cosine.argsort(descending=True)[:k]:
            votes[row, train_labels[index]] += torch.exp(cosine[index] / temperature)
    return votes


def clusters(classes=6, train=120, test=40, width=5, dtype=torch.float64):
    centres = torch.randn(classes, width, dtype=dtype)
    result = []
    for count in (train, test):
        labels = torch.randint(classes, (count,))
        result += [centres[labels] + torch.randn(count, width, dtype=dtype), labels]
    return result


class TestAgainstTheDefinition:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize(
        ("k", "temperature"), [(1, 0.1), (7, 0.1), (50, 0.03), (120, 0.1), (120, 100.0)]
    )
    def test_votes(self, k, temperature, dtype):
        samples = clusters(dtype=dtype)
        train, train_labels, test, test_labels = samples
        result = knn(*samples, k=k, temperature=temperature)
        votes = plainly(train, train_labels, test, k, temperature, 6)
        first, second = (votes / votes.sum(1, keepdim=True)).topk(2).values.unbind(1)
        clear = first - second > 1e-5
        assert clear.sum() > 35
        assert torch.equal(result.predictions[clear], votes.argmax(1)[clear])
        assert result.accuracy == (result.predictions == test_labels).double().mean().item()
        five = votes.topk(5).indices == test_labels[:, None]
        if k == 120:  # else many classes tie at no votes
            assert result.top5 == five.any(1).double().mean().item()

    @pytest.mark.parametrize("k", [1, 20, 200, 1500])
    def test_scikit_learn(self, real, k):
        train, train_labels, test, test_labels = real
        train, test = train.double(), test.double()

        def weights(distance):
            return np.exp((1 - distance) / 0.1)

        reference = KNeighborsClassifier(k, metric="cosine", weights=weights)
        reference.fit(train.numpy(), train_labels.numpy())
        shares = torch.from_numpy(reference.predict_proba(test.numpy()))
        total = torch.from_numpy(weights(reference.kneighbors(test.numpy())[0]).sum(axis=1))
        first, second = (shares * total[:, None]).topk(2).values.unbind(1)
        clear = first - second >= 1e-9
        assert clear.sum() > 490
        predictions = torch.from_numpy(reference.predict(test.numpy()))
        result = knn(train, train_labels, test, test_labels, k=k)
        assert torch.equal(result.predictions[clear], predictions[clear])
        assert result.predictions.unique().numel() > (1 if k == 1500 else 5)


@pytest.mark.parametrize("chunk", [1, 7, 40, 1000])
def test_chunks_bound_the_product_and_change_nothing(chunk, monkeypatch):
    samples = clusters()
    whole = knn(*samples, k=30)
    shapes = []

    def watched(a, b):
        shapes.append((len(a), b.shape[1]))
        return a @ b

    monkeypatch.setattr(MODULE, "matmul", watched)
    result = knn(*samples, k=30, chunk=chunk)
    assert torch.equal(result.predictions, whole.predictions)
    assert result.top5 == whole.top5
    assert max(shapes) == (min(chunk, 40), 120)
    assert len(shapes) == math.ceil(40 / chunk)


def test_the_default_chunk_holds_so_many_similarities_or_votes(monkeypatch):
    samples = clusters()
    shapes = []
    monkeypatch.setattr(MODULE, "_BLOCK", 1000)
    monkeypatch.setattr(MODULE, "matmul", lambda a, b: shapes.append(len(a)) or a @ b)
    knn(*samples, k=30)
    assert shapes == [8] * 5
    shapes.clear()
    knn(*samples, k=30, classes=200)  # more of them than training samples
    assert shapes == [5] * 8


class TestTies:
    def test_equal_votes_go_to_the_lowest_class(self):
        train = torch.eye(4)
        labels = torch.tensor([3, 1, 2, 0])
        test = torch.tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]])
        result = knn(train, labels, test, torch.tensor([1, 2, 0]), k=3)
        assert result.predictions.tolist() == [1, 2, 0]

    def test_the_order_of_votes_does_not_matter(self):
        weights = torch.rand(333, dtype=torch.float64)
        weights = torch.cat([weights[torch.randperm(333)] for _ in range(3)])[None]
        voted = torch.tensor([2, 0, 1]).repeat_interleave(333)[None]
        sums = torch.zeros(1, 3, dtype=torch.float64).scatter_add_(1, voted, weights)
        assert sums.unique().numel() > 1, "floats were to differ here"
        votes = MODULE._count_votes(weights, voted, 3)
        assert votes.unique().numel() == 1
        assert votes.argmax() == 0

    def test_top_five_counts_lower_classes_first(self):
        # One vote for class 7; all others tie at none, so that 0 to 3 are next.
        train, labels = torch.tensor([[1.0]]), torch.tensor([7])
        test = torch.ones(8, 1)
        result = knn(train, labels, test, torch.arange(8), k=1)
        assert result.accuracy == 1 / 8
        assert result.top5 == 5 / 8


class TestLeaveOneOut:
    @pytest.mark.parametrize("chunk", [None, 1, 50])
    def test_each_sample_is_predicted_by_the_others(self, chunk):
        features, labels, _, _ = clusters()
        result = knn(features, labels, k=30, chunk=chunk)
        for sample in range(len(labels)):
            others = torch.arange(len(labels)) != sample
            alone = knn(features[others], labels[others], features[[sample]], labels[[sample]], 30)
            assert result.predictions[sample] == alone.predictions[0]
        assert result.accuracy == (result.predictions == labels).double().mean().item()
        assert result.protocol["leave_one_out"]

    def test_all_the_others_is_the_most(self):
        features, labels, test, _ = clusters()
        assert knn(features, labels, k=119).protocol["train_samples"] == 119
        with pytest.raises(ValueError, match=r"k must be in \[1, 119\].*got 120"):
            knn(features, labels, k=120)
        with pytest.raises(ValueError, match="test_features and test_labels must be given both"):
            knn(features, labels, test)

    def test_the_protocol_never_looks_at_test_images(self):
        _, labels, _, _ = clusters()
        images = torch.randint(0, 256, (120, 3, 4, 4), dtype=torch.uint8)
        encoder = torch.nn.Flatten()
        train = LabelledImages(images, labels)
        unreadable = LabelledImages(images[:1], labels[:1])
        subject = Subject(encoder, Task(train, unreadable, classes=6))
        seen = []
        subject.features = lambda name, read=subject.features: seen.append(name) or read(name)
        result = KNN(k=30, leave_one_out=True).evaluate(subject)
        assert seen == ["train"]
        assert result.protocol["leave_one_out"]
        assert "leave_one_out" not in KNN(k=30).describe(subject, 0)
        alone = Subject(encoder, Task(train, None, classes=6))
        assert KNN(k=30, leave_one_out=True).evaluate(alone).numbers == result.numbers
        with pytest.raises(ValueError, match="there are no test images beside it"):
            KNN(k=30).evaluate(alone)


class TestExtremes:
    @pytest.mark.parametrize("scale", [2.0**-100, 2.0**100])
    def test_only_directions_matter(self, scale):
        train, train_labels, test, test_labels = clusters(dtype=torch.float32)
        expected = knn(train, train_labels, test, test_labels, k=30)
        scaled = knn(train * scale, train_labels, test / scale, test_labels, k=30)
        assert torch.equal(scaled.predictions, expected.predictions)

    def test_zero_features_are_similar_to_nothing(self):
        train = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
        result = knn(train, torch.tensor([2, 0, 1]), train, torch.tensor([0, 0, 1]), k=2)
        # Zeros are equally far from all; (1, 0) votes for itself, and (-1, 0) too.
        assert result.predictions[1:].tolist() == [0, 1]

    @pytest.mark.parametrize("temperature", [1e-300, 1e-3])
    def test_cold_votes_are_those_of_the_nearest(self, temperature):
        samples = clusters()
        nearest = knn(*samples, k=1)
        assert torch.equal(
            knn(*samples, k=100, temperature=temperature).predictions, nearest.predictions
        )

    def test_half_precision_is_compared_in_float32(self):
        train, train_labels, test, test_labels = clusters(dtype=torch.float32)
        half = knn(train.bfloat16(), train_labels, test.bfloat16(), test_labels, k=30)
        full = knn(
            train.bfloat16().float(), train_labels, test.bfloat16().float(), test_labels, k=30
        )
        assert torch.equal(half.predictions, full.predictions)

    def test_float64_is_not_rounded(self):
        # The first neighbour is nearer by 1e-10.
        train = torch.tensor([[1.0, 1e-5], [1.0, 2e-5]], dtype=torch.float64)
        test = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        result = knn(train, torch.tensor([1, 0]), test, torch.tensor([1]), k=1)
        assert result.accuracy == 1

    def test_autocast_changes_nothing(self):
        samples = clusters(dtype=torch.float32)
        expected = knn(*samples, k=30)
        seen = []
        with torch.autocast("cpu", dtype=torch.bfloat16), pytest.MonkeyPatch.context() as patch:
            patch.setattr(MODULE, "matmul", lambda a, b: seen.append((a @ b).dtype) or a @ b)
            result = knn(*samples, k=30)
        assert torch.equal(result.predictions, expected.predictions)
        assert seen == [torch.float32]


def test_integers_of_any_kind_are_labels():
    train, train_labels, test, test_labels = clusters()
    expected = knn(train, train_labels, test, test_labels, k=30)
    for dtype in (torch.uint8, torch.int32):
        result = knn(train, train_labels.to(dtype), test, test_labels.to(dtype), k=30)
        assert torch.equal(result.predictions, expected.predictions)
        assert result.predictions.dtype == torch.int64


def test_more_classes_than_seen():
    samples = clusters()
    few, many = knn(*samples, k=30), knn(*samples, k=30, classes=1000)
    assert torch.equal(few.predictions, many.predictions)
    assert (few.protocol["classes"], many.protocol["classes"]) == (6, 1000)


def test_protocol_is_json():
    protocol = json.loads(json.dumps(knn(*clusters(), k=30).protocol))
    assert protocol["k"] == 30
    assert (protocol["train_samples"], protocol["test_samples"]) == (120, 40)


def replaced(position, value):
    return lambda samples: [*samples[:position], value, *samples[position + 1 :]]


def poked(position, index, value):
    def change(samples):
        samples[position][index] = value
        return samples

    return change


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (replaced(0, torch.randn(120, 4)), {}, "same width; got 4 and 5"),
        (replaced(0, torch.randn(120, 5)), {}, "same dtype; got torch.float32 and torch.float64"),
        (replaced(0, torch.randn(120)), {}, r"train_features must be floats of shape \(N, F\)"),
        (
            replaced(0, torch.ones(120, 5).long()),
            {},
            "train_features must be floats.*got torch.int",
        ),
        (replaced(2, torch.randn(0, 5)), {}, r"test_features must be .*got .* \(0, 5\)"),
        (
            replaced(1, torch.ones(119).long()),
            {},
            r"train_labels must be.*\(120,\).*got .*\(119,\)",
        ),
        (replaced(3, torch.ones(40)), {}, "test_labels must be integers.*got torch.float32"),
        (replaced(3, torch.ones(40).bool()), {}, "test_labels must be integers.*got torch.bool"),
        (poked(1, 0, -1), {}, r"train_labels must be in \[0, 6\).*got -1 to 5"),
        (poked(3, 0, 6), {}, r"test_labels must be in \[0, 6\).*got 0 to 6"),
        (lambda samples: samples, {"classes": 3}, r"train_labels must be in \[0, 3\)"),
        (lambda samples: samples, {"classes": 0}, "classes must be >= 1; got 0"),
        (poked(0, (3, 1), math.nan), {}, "train_features must be finite; got 1 of 120.*index 3"),
        (poked(2, (slice(4, 6), 1), math.inf), {}, "test_features must be .*got 2 of 40.*index 4"),
        (lambda samples: samples, {"k": 0}, r"k must be in \[1, 120\].*got 0"),
        (lambda samples: samples, {"k": 121}, r"k must be in \[1, 120\].*got 121"),
        (lambda samples: samples, {"temperature": 0.0}, "temperature must be > 0.*got 0.0"),
        (lambda samples: samples, {"temperature": math.nan}, "temperature must be > 0.*got nan"),
        (lambda samples: samples, {"temperature": math.inf}, "temperature must be > 0.*got inf"),
        (lambda samples: samples, {"chunk": 0}, "chunk must be >= 1; got 0"),
    ],
)
def test_errors(change, options, message):
    with pytest.raises(ValueError, match=message):
        knn(*change(clusters()), **({"k": 30} | options))


def test_all_negative_labels_are_refused():
    train, train_labels, test, test_labels = clusters()
    with pytest.raises(ValueError, match=r"train_labels must be in \[0, 1\).*got -1 to -1"):
        knn(train, torch.full_like(train_labels, -1), test, test_labels, k=3)


@pytest.mark.gpu
class TestCUDA:
    def test_equals_the_cpu(self, real):
        train, train_labels, test, test_labels = real
        train, test = train.double(), test.double()
        expected = knn(train, train_labels, test, test_labels)
        result = knn(train.cuda(), train_labels, test.cuda(), test_labels)
        assert result.predictions.is_cuda
        assert (result.predictions.cpu() == expected.predictions).double().mean() >= 0.998

    def test_tf32_changes_nothing_and_runs_repeat(self):
        samples = clusters(100, 20_000, 2_000, 64, torch.float32)
        samples = [tensor.cuda() for tensor in samples]
        before = torch.get_float32_matmul_precision()
        expected = knn(*samples)
        try:
            torch.set_float32_matmul_precision("high")
            for _ in range(3):
                result = knn(*samples)
                assert torch.equal(result.predictions, expected.predictions)
                assert result.top5 == expected.top5
            assert torch.get_float32_matmul_precision() == "high"
        finally:
            torch.set_float32_matmul_precision(before)
