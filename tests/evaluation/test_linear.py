import inspect
import json
import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from dsf.evaluation import _logistic, _samples, choose_weight_decay, hold_out, linear_fast
from dsf.evaluation.linear import WEIGHT_DECAYS

FEW = (1e-3, 1e-2, 1e-1)


@pytest.fixture
def samples():
    centres = torch.randn(4, 6)
    result = []
    for count in (200, 100):
        labels = torch.randint(4, (count,))
        result += [3 * (centres[labels] + torch.randn(count, 6)) + 5, labels]
    return result


def scikit_learn(features, labels, weight_decay, tolerance=1e-6):
    """The same objective and standardisation by scikit-learn."""
    scaler = StandardScaler().fit(features.double().numpy())
    model = LogisticRegression(
        C=1 / (len(features) * weight_decay), tol=tolerance, max_iter=100_000
    )
    model.fit(scaler.transform(features.double().numpy()), labels.numpy())
    return scaler, model


def scikit_learn_tuned(train, train_labels, test, test_labels, weight_decays):
    """The whole protocol by scikit-learn: its choice, its table, its test accuracy."""
    held, rest = hold_out(train_labels, 0.1, seed=0)
    table = []
    for decay in weight_decays:
        scaler, model = scikit_learn(train[rest], train_labels[rest], decay)
        unseen = scaler.transform(train[held].double().numpy())
        table.append(model.score(unseen, train_labels[held].numpy()))
    best = max(zip(table, weight_decays))[1]
    scaler, model = scikit_learn(train, train_labels, best)
    return best, table, model.score(scaler.transform(test.double().numpy()), test_labels.numpy())


class TestAgainstScikitLearn:
    def test_the_minimum_is_the_same(self, real):
        features, labels = (tensor[:600] for tensor in real[:2])
        fitted = _logistic.fit(features.double(), labels, 10, FEW, 1e-9, 5000)
        assert fitted.gradient.max() < 1e-9
        for index, decay in enumerate(FEW):
            scaler, model = scikit_learn(features, labels, decay, tolerance=1e-9)
            np.testing.assert_allclose(fitted.mean, scaler.mean_, rtol=1e-12)
            np.testing.assert_allclose(fitted.std, scaler.scale_, rtol=1e-9)
            np.testing.assert_allclose(fitted.weight[index], model.coef_, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(fitted.bias[index], model.intercept_, rtol=1e-4, atol=1e-5)

    def test_accuracy(self, real):
        result = linear_fast(*real, weight_decays=FEW)
        chosen, table, accuracy = scikit_learn_tuned(*real, FEW)
        assert result.chosen == {"weight_decay": chosen}
        assert [row["accuracy"] for row in result.held_out] == pytest.approx(table, abs=0.007)
        assert abs(result.accuracy - accuracy) <= 0.003

    @pytest.mark.slow
    def test_accuracy_on_all_embedded_images_over_the_whole_grid(self, real_whole):
        result = linear_fast(*real_whole)
        _, table, accuracy = scikit_learn_tuned(*real_whole, WEIGHT_DECAYS)
        assert abs(result.accuracy - accuracy) <= 0.003
        assert [row["accuracy"] for row in result.held_out] == pytest.approx(table, abs=0.005)
        assert accuracy > 0.25  # ten classes: the features say something


class TestFit:
    def test_settings_do_not_disturb_each_other(self, samples):
        features, labels = samples[0].double(), samples[1]
        together = _logistic.fit(features, labels, 4, WEIGHT_DECAYS, 1e-8, 5000)
        for index in (0, 4, 10):
            alone = _logistic.fit(features, labels, 4, [WEIGHT_DECAYS[index]], 1e-8, 5000)
            torch.testing.assert_close(
                together.weight[index], alone.weight[0], rtol=1e-3, atol=1e-4
            )

    def test_those_that_have_arrived_take_no_more_steps(self, samples, monkeypatch):
        sizes = []
        original = _logistic._gradient

        def watched(features, labels, weight):
            sizes.append(len(weight))
            return original(features, labels, weight)

        monkeypatch.setattr(_logistic, "_gradient", watched)
        fitted = _logistic.fit(*samples[:2], 4, WEIGHT_DECAYS, 1e-4, 1000)
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] == len(WEIGHT_DECAYS) > sizes[-1]
        assert len(sizes) == fitted.steps
        assert (fitted.gradient < 1e-4).all()

    def test_rows_in_blocks_change_nothing(self, samples, monkeypatch):
        features, labels = samples[0].double(), samples[1]
        expected = _logistic.fit(features, labels, 4, FEW, 1e-8, 5000)
        monkeypatch.setattr(_logistic, "_BLOCK", 7 * 12)
        blocks = _logistic.fit(features, labels, 4, FEW, 1e-8, 5000)
        torch.testing.assert_close(blocks.weight, expected.weight)
        torch.testing.assert_close(blocks.predict(features), expected.predict(features))

    def test_gradient_is_that_of_the_objective(self, samples):
        features, labels = samples[0].double(), samples[1]
        weight = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
        logits = torch.einsum("nf,scf->nsc", features, weight)
        targets = labels[:, None].expand(-1, 3)
        loss = torch.nn.functional.cross_entropy(logits.mT, targets) * 3
        (expected,) = torch.autograd.grad(loss, weight)
        actual = _logistic._gradient(features, labels, weight.detach())
        torch.testing.assert_close(actual, expected)

    def test_separable_classes_with_correlated_and_constant_features(self):
        # Fewer samples than features, some of them copies, some constant.
        base = torch.randn(40, 8)
        features = torch.cat([base, base[:, :4], base @ torch.randn(8, 60)], dim=1)
        features = torch.cat([features, torch.full((40, 2), 0.1), torch.zeros(40, 1)], dim=1)
        labels = torch.arange(40) % 4
        features[:, 0] += 10 * labels
        fitted = _logistic.fit(features, labels, 4, WEIGHT_DECAYS, 1e-4, 1000)
        assert fitted.weight.isfinite().all()
        assert (fitted.gradient < 1e-4).all()
        assert torch.equal(fitted.std[-3:], torch.ones(3))
        assert fitted.weight[..., -3:].abs().max() < 1e-5
        assert (fitted.predict(features)[:, 0] == labels).all()

    @pytest.mark.parametrize("scale", [1e-25, 1e25])
    def test_scale_and_shift_of_features_do_not_matter(self, samples, scale):
        features, labels = samples[:2]
        expected = _logistic.fit(features, labels, 4, FEW, 1e-5, 1000)
        scaled = _logistic.fit(features * scale, labels, 4, FEW, 1e-5, 1000)
        torch.testing.assert_close(scaled.weight, expected.weight, rtol=1e-3, atol=1e-4)

    def test_stops_at_the_step_asked_for(self, samples):
        assert _logistic.fit(*samples[:2], 4, FEW, 1e-30, 33).steps == 33

    def test_float32_reaches_the_tolerance(self, real):
        fitted = _logistic.fit(*real[:2], 10, WEIGHT_DECAYS, 1e-4, 1000)
        assert (fitted.gradient < 1e-4).all()
        assert fitted.weight.dtype == torch.float32


class TestProtocol:
    def test_the_test_set_plays_no_part_in_the_choice(self, samples):
        train, train_labels, *_ = samples
        result = linear_fast(*samples)
        other = linear_fast(train, train_labels, torch.randn(7, 6), torch.arange(7) % 4)
        assert (other.chosen, other.held_out) == (result.chosen, result.held_out)
        assert not any("test" in name for name in inspect.signature(choose_weight_decay).parameters)

    def test_the_final_classifier_is_trained_on_all_training_data(self, samples):
        train, train_labels, test, test_labels = samples
        result = linear_fast(*samples, weight_decays=[0.01])
        final = _logistic.fit(train, train_labels, 4, [0.01], 1e-4, 1000)
        assert torch.equal(result.predictions, final.predict(test)[:, 0])
        assert result.accuracy == (result.predictions == test_labels).double().mean().item()
        assert result.top5 == 1  # four classes

    def test_top_five(self):
        labels = torch.arange(400) % 8
        features = torch.randn(8, 8)[labels] + 2 * torch.randn(400, 8)
        result = linear_fast(features, labels, features, labels, weight_decays=[0.01])
        final = _logistic.fit(features, labels, 8, [0.01], 1e-4, 1000)
        first = final.logits(features)[:, 0].topk(5).indices
        assert result.top5 == (first == labels[:, None]).any(1).double().mean().item()
        assert result.accuracy < result.top5 < 1

    def test_many_classes_are_asked_of_few_samples_at_a_time(self, samples, monkeypatch):
        expected, sizes = linear_fast(*samples, weight_decays=[0.01]), []
        logits = _logistic.Classifiers.logits

        def watched(self, features):
            sizes.append(len(features))
            return logits(self, features)

        monkeypatch.setattr(_logistic.Classifiers, "logits", watched)
        monkeypatch.setattr(_samples, "_BLOCK", 7 * 4)
        found = linear_fast(*samples, weight_decays=[0.01])
        assert sizes[-15:] == [7] * 14 + [2]  # of 100 test samples, after those held out
        assert torch.equal(found.predictions, expected.predictions)
        assert found.top5 == expected.top5

    def test_chooses_the_best_and_of_equals_the_largest(self, samples):
        result = choose_weight_decay(*samples[:2], weight_decays=(1e-9, 0.1, 1e-2, 1e9))
        rows = {row["weight_decay"]: row["accuracy"] for row in result.held_out}
        assert list(rows) == [1e-9, 0.1, 1e-2, 1e9]
        best = max(rows.values())
        assert result.weight_decay == max(decay for decay in rows if rows[decay] == best)
        # Features that separate the classes by far: all settings are right.
        labels = torch.arange(100) % 2
        features = torch.stack([100.0 * labels, torch.randn(100)], dim=1)
        assert choose_weight_decay(features, labels, weight_decays=FEW).weight_decay == 0.1

    def test_repeats_to_the_bit_and_follows_the_seed(self, samples):
        first, again = (linear_fast(*samples, seed=5) for _ in range(2))
        assert first.held_out == again.held_out
        assert torch.equal(first.predictions, again.predictions)
        assert linear_fast(*samples, seed=6).held_out != first.held_out

    def test_does_not_depend_on_the_random_state_or_autocast(self, samples):
        expected = linear_fast(*samples)
        torch.manual_seed(99)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = linear_fast(*samples)
        assert result.held_out == expected.held_out
        assert torch.equal(result.predictions, expected.predictions)

    def test_official_validation_data(self, samples):
        rows = torch.arange(0, 200, 3)
        rest = torch.tensor([row for row in range(200) if row % 3])
        result = linear_fast(*samples, weight_decays=FEW, validation=rows)
        fitted = _logistic.fit(samples[0][rest], samples[1][rest], 4, FEW, 1e-4, 1000)
        predictions = fitted.predict(samples[0][rows])
        expected = (predictions == samples[1][rows][:, None]).double().mean(dim=0).tolist()
        assert [row["accuracy"] for row in result.held_out] == expected
        final = _logistic.fit(*samples[:2], 4, [result.chosen["weight_decay"]], 1e-4, 1000)
        assert torch.equal(result.predictions, final.predict(samples[2])[:, 0])

    def test_classes_are_told_apart(self, samples):
        result = linear_fast(*samples)
        confusion = torch.zeros(4, 4, dtype=torch.int64)
        for label, prediction in zip(samples[3], result.predictions):
            confusion[label, prediction] += 1
        assert torch.equal(result.scores.confusion, confusion)
        assert torch.equal(result.classifier.predict(samples[2])[:, 0], result.predictions)

    def test_is_json(self, samples):
        result = linear_fast(*samples, seed=2**64 - 1)
        protocol = json.loads(json.dumps(result.protocol))
        assert protocol["name"] == "fast"
        assert protocol["seed"] == 2**64 - 1
        assert protocol["weight_decays"] == list(WEIGHT_DECAYS)
        assert 0 < protocol["final_gradient"] < protocol["tolerance"]
        json.dumps([result.chosen, result.held_out])

    def test_classes_without_samples(self, samples):
        result = linear_fast(*samples, classes=7)
        assert result.predictions.max() < 4


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({0: torch.randn(200, 5)}, {}, "same width; got 5 and 6"),
        ({0: torch.zeros(0, 6)}, {}, "train_features must be floats.*none of them 0"),
        ({1: torch.zeros(3).long()}, {}, r"train_labels must be integers of shape \(200,\)"),
        ({2: torch.full((100, 6), math.nan)}, {}, "test_features must be finite; got 100 of 100"),
        ({3: torch.full((100,), 4)}, {}, r"test_labels must be in \[0, 4\).*got 4 to 4"),
        ({}, {"classes": 2}, r"train_labels must be in \[0, 2\).*got 0 to 3"),
        ({}, {"seed": -1}, "seed must be in"),
        ({}, {"weight_decays": ()}, r"weight_decays must be one or more.*got \(\)"),
        ({}, {"weight_decays": (0.1, 0.0)}, r"weight_decays must be.*> 0; got \(0.1, 0.0\)"),
        ({}, {"weight_decays": (math.inf,)}, "weight_decays must be"),
        ({}, {"held_out": 0.0}, r"held_out must be in \(0, 1\); got 0.0"),
        ({}, {"held_out": 1}, r"held_out must be in \(0, 1\); got 1"),
        ({}, {"tolerance": 0}, "tolerance must be > 0; got 0"),
        ({}, {"max_steps": 0}, "max_steps must be >= 1; got 0"),
    ],
)
def test_errors(samples, change, options, message):
    arguments = [change.get(position, value) for position, value in enumerate(samples)]
    with pytest.raises(ValueError, match=message):
        linear_fast(*arguments, **options)


def test_a_sample_a_class_cannot_be_split():
    with pytest.raises(ValueError, match="a class of two samples or more.*got 3 samples of 3"):
        choose_weight_decay(torch.randn(3, 2), torch.arange(3))


@pytest.mark.gpu
class TestCUDA:
    def test_equals_the_cpu(self, real):
        train, train_labels, test, test_labels = real
        train, test = train.double(), test.double()
        expected = linear_fast(train, train_labels, test, test_labels, weight_decays=FEW)
        result = linear_fast(
            train.cuda(), train_labels, test.cuda(), test_labels, weight_decays=FEW
        )
        assert result.chosen == expected.chosen
        assert abs(result.accuracy - expected.accuracy) <= 0.003

    def test_repeats_to_the_bit_with_tf32_on(self, real):
        on_gpu = [tensor.cuda() for tensor in real]
        before = torch.get_float32_matmul_precision()
        expected = linear_fast(*on_gpu)
        try:
            torch.set_float32_matmul_precision("high")
            result = linear_fast(*on_gpu)
        finally:
            torch.set_float32_matmul_precision(before)
        assert result.held_out == expected.held_out
        assert torch.equal(result.predictions, expected.predictions)
