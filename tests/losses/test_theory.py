"""The paper's claims about the similarity, and what its formulas really compute."""

import math
from itertools import product

import pytest
import torch
from exact import exact
from torch.nn.functional import normalize

from dsf.losses import CosineLoss, DSFLoss, DSFSimilarity, FeatureAverage, info_nce
from dsf.vmf import (
    ViewDistribution,
    bessel_ratio,
    fit_views,
    inverse_bessel_ratio,
    kl_divergence,
)


def views_of(batch, m, p, seed=0, noise=0.5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(batch, 1, p, generator=generator, dtype=torch.float64)
    spread = torch.rand(batch, 1, 1, generator=generator, dtype=torch.float64)
    noisy = torch.randn(batch, m, p, generator=generator, dtype=torch.float64)
    return (base + noise * (0.5 + spread) * noisy).to(dtype)


def solve_for_temperature(p, tau):
    """The kappa with A_p(kappa) kappa = 1 / tau, by bisection."""
    low, high = 0.0, 10 * p / tau
    for _ in range(200):
        middle = (low + high) / 2
        value = bessel_ratio(torch.tensor(middle, dtype=torch.float64), p).item() * middle
        low, high = (middle, high) if value < 1 / tau else (low, middle)
    return (low + high) / 2


class TestTheorem1:
    @pytest.mark.parametrize(("p", "tau"), [*product([3, 64, 128, 256], [1.0, 0.2, 0.07])])
    def test_equal_concentrations_give_the_cosine_loss(self, p, tau):
        kappa = solve_for_temperature(p, tau)
        queries, keys = views_of(12, 1, p), views_of(20, 1, p, seed=1)
        positives = torch.arange(12)
        results = []
        for divergence in (True, False):
            q, k = (side[:, 0].clone().requires_grad_() for side in (queries, keys))
            z, w = normalize(q, dim=-1), normalize(k, dim=-1)
            if divergence:
                i, j = (
                    ViewDistribution(mu, *(torch.full((2, len(mu)), kappa, dtype=torch.float64)))
                    for mu in (z, w)
                )
                logits = -kl_divergence(i, j, pairwise=True)
            else:
                logits = z @ w.T / tau
            loss = info_nce(logits, positives)
            results.append((loss.detach(), *torch.autograd.grad(loss, (q, k))))
        for ours, cosine in zip(*results):
            torch.testing.assert_close(ours, cosine, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize(("p", "tau", "kappa"), [(128, 0.1, 37.13), (256, 0.07, 62.13)])
    def test_the_concentrations_it_asks_for(self, p, tau, kappa):
        assert solve_for_temperature(p, tau) == pytest.approx(kappa, abs=0.005)

    @pytest.mark.parametrize("shrink", [0.9, 0.95, 0.97])
    @pytest.mark.parametrize("p", [2, 128, 256])
    @pytest.mark.parametrize("setting", ["both", "cross", "queue"])
    def test_one_view_is_cosine_at_a_temperature_that_shrinking_sets(self, p, shrink, setting):
        tau = p * (1 - shrink**2) / (shrink**2 * (p - shrink**2))
        if (p, shrink) == (128, 0.95):
            assert tau == pytest.approx(0.1088, abs=5e-5)
        options = {"both": {}, "cross": {"in_batch": "cross"}}.get(setting)
        if options is None:
            options = {"memory_bank_size": (9, p)}
        torch.manual_seed(0)
        ours = DSFLoss(shrink=shrink, **options).double()
        torch.manual_seed(0)
        cosine = CosineLoss(temperature=tau, **options).double()
        for seed in range(3):
            out0, out1 = views_of(5, 1, p, 2 * seed), views_of(5, 1, p, 2 * seed + 1)
            out0.requires_grad_()
            value, expected = ours(out0, out1), cosine(out0, out1)
            torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
            (gradient,) = torch.autograd.grad(value, out0)
            (other,) = torch.autograd.grad(expected, out0)
            torch.testing.assert_close(gradient, other, rtol=1e-8, atol=1e-12)


class TestProposition:
    # log(1 + K exp(-2 / tau)). Four entries of the paper's table are truncated, not rounded:
    # 3.573, 6.319, 0.011 and 0.170.
    TABLE = {
        1.0: (3.574, 6.320, 9.090),
        0.5: (1.738, 4.331, 7.091),
        0.2: (0.012, 0.171, 1.380),
        0.1: (0.000, 0.000, 0.0001),
    }

    @pytest.mark.parametrize("tau", TABLE)
    def test_table(self, tau):
        for negatives, expected in zip((256, 4096, 65536), self.TABLE[tau]):
            logits = torch.full((1, negatives + 1), -1 / tau, dtype=torch.float64)
            logits[0, 0] = 1 / tau
            loss = info_nce(logits, torch.zeros(1, dtype=torch.int64)).item()
            assert loss == pytest.approx(math.log1p(negatives * math.exp(-2 / tau)), rel=1e-9)
            assert abs(loss - expected) <= 0.0005

    def test_in_the_text(self):
        assert math.log1p(4096 * math.exp(-2)) == pytest.approx(6.3196, abs=5e-5)


class TestAppendixB:
    def test_feature_average_is_the_mean_of_pairwise_cosines(self):
        a, b = views_of(4, 3, 10), views_of(6, 3, 10, seed=1)
        loss = FeatureAverage()
        means = loss.logits(loss.represent(a), loss.represent(b))
        cosines = torch.einsum("ild,jkd->ijlk", normalize(a, dim=-1), normalize(b, dim=-1))
        torch.testing.assert_close(means, cosines.mean(dim=(2, 3)), rtol=1e-13, atol=1e-14)


def three_terms(kappa_i, kappa_j, scale_i, cos, p):
    """The paper's divergence between two concentrations in ball arithmetic, as published."""
    i, j = exact(kappa_i / p, p), exact(kappa_j / p, p)
    # nu log(k_i / k_j) + log I_nu(k_j) - log I_nu(k_i) is -log C(k_j) + log C(k_i)
    constants = i.log_normalizer - j.log_normalizer
    return float(constants) + scale_i * (kappa_i / p - kappa_j / p * cos)


class TestPaperMode:
    @pytest.mark.parametrize("p", [128, 256])
    @pytest.mark.parametrize("m", [2, 4])
    def test_similarity_is_the_published_one(self, p, m):
        similarity = DSFSimilarity()
        i, j = similarity.fit(views_of(4, m, p)), similarity.fit(views_of(5, m, p, seed=1))
        ours = similarity(i, j)
        for row, column in product(range(4), range(5)):
            cos = (i.mu[row] @ j.mu[column]).item()
            scale = i.resultant[row].item()
            truth = three_terms(i.kappa[row].item(), j.kappa[column].item(), scale, cos, p)
            assert ours[row, column].item() == pytest.approx(-truth, abs=1e-10)

    @pytest.mark.parametrize("p", [128, 256])
    @pytest.mark.parametrize("queue_kappa", ["batch-mean", "stored"])
    def test_queue(self, p, queue_kappa):
        torch.manual_seed(0)
        loss = DSFLoss(memory_bank_size=(6, p), queue_kappa=queue_kappa).double()
        stored = [views_of(3, 4, p, seed) for seed in (5, 6)]
        for views in stored:
            loss(views, views)
        loss.eval()
        out0, out1 = views_of(4, 4, p), views_of(4, 4, p, seed=1)
        query, key = loss.represent(out0), loss.represent(out1)
        bank = fit_views(torch.cat(stored))
        mean = torch.cat([query.kappa, key.kappa]).mean().item()
        rows = []
        for n in range(4):
            k_i, scale = query.kappa[n].item(), query.resultant[n].item()
            pairs = [(key.kappa[n].item(), key.mu[n])]
            for slot in range(6):
                kappa = mean if queue_kappa == "batch-mean" else bank.kappa[slot].item()
                pairs.append((kappa, bank.mu[slot]))
            rows.append(
                [-three_terms(k_i, k_j, scale, (query.mu[n] @ mu).item(), p) for k_j, mu in pairs]
            )
        truth = info_nce(torch.tensor(rows, dtype=torch.float64), torch.zeros(4).long())
        assert loss(out0, out1).item() == pytest.approx(truth.item(), abs=1e-10)

    @pytest.mark.parametrize("mode", ["paper", "exact", "literal"])
    def test_three_terms_add_up(self, mode):
        similarity = DSFSimilarity(mode)
        i, j = similarity.fit(views_of(4, 3, 64)), similarity.fit(views_of(4, 3, 64, seed=1))
        total = sum(similarity.terms(i, j))
        torch.testing.assert_close(-total, similarity(i, j).diagonal(), rtol=1e-9, atol=1e-11)

    def test_it_is_not_a_divergence(self):
        # At cos = 1 it prefers the more concentrated key: D(R = .9, R = .99) = -4.00 at p = 128.
        similarity = DSFSimilarity()
        mu = torch.zeros(1, 128, dtype=torch.float64)
        mu[0, 0] = 1
        sides = []
        for r in (0.9, 0.99):
            shrunk = torch.tensor([0.95 * r], dtype=torch.float64)
            kappa = shrunk * (128 - shrunk**2) / (1 - shrunk**2)
            sides.append(ViewDistribution(mu, shrunk, kappa))
        assert similarity(*sides).item() == pytest.approx(4.00, abs=0.005)


class TestExactMode:
    def test_is_kl_over_p(self):
        similarity = DSFSimilarity("exact", estimator="mle")
        i, j = similarity.fit(views_of(4, 3, 32)), similarity.fit(views_of(5, 3, 32, seed=1))
        expected = -kl_divergence(i, j, pairwise=True) / 32
        torch.testing.assert_close(similarity(i, j), expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            i.kappa, inverse_bessel_ratio(i.resultant, 32), rtol=1e-12, atol=0
        )

    @pytest.mark.parametrize(
        "divergence",
        ["kl", "jeffreys", "renyi", "bhattacharyya", "geometric-js", "chi-squared", "hellinger"],
    )
    def test_zero_at_equality_and_non_negative(self, divergence):
        similarity = DSFSimilarity("exact", divergence=divergence)
        i, j = similarity.fit(views_of(40, 3, 32)), similarity.fit(views_of(50, 3, 32, seed=1))
        assert similarity(i, j).max() < 1e-12
        assert similarity(i, i).diagonal().abs().max() < 1e-12


class TestDegenerateViews:
    @pytest.mark.parametrize("mode", ["paper", "exact", "literal"])
    @pytest.mark.parametrize("setting", [{}, {"memory_bank_size": True}])
    @pytest.mark.parametrize("estimator", ["banerjee", "mle"])
    def test_finite_with_finite_gradients(self, mode, setting, estimator):
        for p, dtype in product((2, 16), (torch.float32, torch.float64, torch.bfloat16)):
            base = torch.randn(4, 1, p)
            cancelling = torch.stack([base[:, 0], -base[:, 0]], dim=1)
            cases = {
                "identical": base.expand(4, 3, p),
                "nearly identical": base + 1e-7 * torch.randn(4, 3, p),
                "cancelling": cancelling,
                "one view": base,
            }
            for name, views in cases.items():
                options = {"memory_bank_size": (5, p)} if setting else {}
                loss = DSFLoss(mode=mode, estimator=estimator, **options)
                out0 = views.to(dtype).clone().requires_grad_()
                value = loss(out0, views.to(dtype))
                value.backward()
                assert value.isfinite(), (name, p, dtype)
                assert out0.grad.isfinite().all(), (name, p, dtype)

    def test_detach_resultant(self):
        views = views_of(4, 3, 16).requires_grad_()
        result = DSFSimilarity(detach_resultant=True).fit(views)
        assert result.mu.requires_grad
        assert not result.resultant.requires_grad
        assert not result.kappa.requires_grad
