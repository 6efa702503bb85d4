import math

import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from dsf.evaluation import measures


def units(*shape):
    return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def test_alignment_is_the_mean_over_pairs():
    views = 3 * torch.randn(5, 4, 6, dtype=torch.float64)
    normal = torch.nn.functional.normalize(views, dim=-1)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    expected = sum((normal[:, a] - normal[:, b]).square().sum(-1) for a, b in pairs) / len(pairs)
    torch.testing.assert_close(measures.pair_distances(views), expected)


def test_uniformity(monkeypatch):
    features = torch.randn(40, 5, dtype=torch.float64)
    normal = torch.nn.functional.normalize(features, dim=-1)
    kernel = (-2 * torch.cdist(normal, normal).square()).exp()
    expected = kernel[~torch.eye(40, dtype=torch.bool)].mean().log().item()
    assert measures.uniformity(features) == pytest.approx(expected)
    monkeypatch.setattr(measures, "_BLOCK", 80)
    assert measures.uniformity(features) == pytest.approx(expected)
    assert measures.uniformity(torch.ones(9, 3)) == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="features must be of two images or more; got 1"):
        measures.uniformity(features[:1])


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_effective_rank_counts_equal_directions(rank):
    axes = torch.eye(12, dtype=torch.float64)[:rank]
    features = torch.cat([axes, -axes]).repeat(5, 1)
    assert measures.effective_rank(features) == pytest.approx(rank)


def test_effective_rank_by_definition():
    features = units(30, 50)
    values = torch.linalg.svdvals(features - features.mean(dim=0))
    shares = values / values.sum()
    expected = math.exp(-(shares * shares.clamp_min(1e-300).log()).sum())
    for part in (features, features.float()):
        # The root of an eigenvalue of 0 is the root of its error.
        assert measures.effective_rank(part) == pytest.approx(expected, rel=1e-3)


def test_class_separation_by_pairs():
    features, labels = units(30, 6), torch.arange(30) % 3
    distance = 1 - features @ features.T
    classes = [labels == label for label in range(3)]
    within = sum(distance[c][:, c].mean() for c in classes) / 3
    total = sum(distance[a][:, b].mean() for a in classes for b in classes) / 9
    found = measures.class_separation(7 * features, labels)
    assert found == pytest.approx(1 - (within / total).item())
    assert 0 < found < 0.3
    assert measures.class_separation(units(3, 6)[labels], labels) == pytest.approx(1)
    assert measures.class_separation(torch.ones(30, 6), labels) == 0


def test_auroc_agrees_with_scikit_learn():
    scores, positive = torch.randint(20, (200,)).float(), torch.rand(200) < 0.3
    expected = roc_auc_score(positive.numpy(), scores.numpy())
    assert measures.auroc(scores, positive) == pytest.approx(expected)
    with pytest.raises(ValueError, match="positive must have both kinds; got 0 of 200"):
        measures.auroc(scores, torch.zeros(200, dtype=torch.bool))


def test_spearman_agrees_with_scipy():
    first, second = torch.randint(4, (20, 9)).float(), torch.randn(20, 9)
    expected = [spearmanr(a, b).statistic for a, b in zip(first.numpy(), second.numpy())]
    found = measures.spearman(first, second)
    assert found.tolist() == pytest.approx(expected)
    assert measures.spearman(torch.ones(1, 4), torch.randn(1, 4)).tolist() == [0]
