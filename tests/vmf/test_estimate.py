import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import normalize

from dsf.vmf import ViewDistribution, bessel_ratio, fit_views, inverse_bessel_ratio

ESTIMATORS = ["banerjee", "mle"]
shapes = st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(2, 40))


def views_of(shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class TestFormulas:
    @pytest.mark.parametrize("shrink", [0.95, 0.5, 1.0])
    def test_banerjee(self, shrink):
        views = views_of((5, 4, 16))
        mean = normalize(views, dim=-1).mean(dim=-2)
        r = mean.norm(dim=-1)
        result = fit_views(views, shrink)
        torch.testing.assert_close(result.mu, mean / r.unsqueeze(-1))
        torch.testing.assert_close(result.resultant, shrink * r)
        r = shrink * r
        torch.testing.assert_close(result.kappa, r * (16 - r**2) / (1 - r**2))

    @pytest.mark.parametrize("shrink", [0.95, 1.0])
    def test_mle_solves_its_equation(self, shrink):
        result = fit_views(views_of((5, 4, 16)), shrink, "mle")
        torch.testing.assert_close(
            bessel_ratio(result.kappa, 16), result.resultant, rtol=1e-14, atol=0
        )

    def test_defaults_are_the_papers(self):
        views = views_of((3, 4, 128))
        for given_, default in zip(fit_views(views, 0.95, "banerjee"), fit_views(views)):
            assert torch.equal(given_, default)

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_one_view_sits_at_the_cap(self, estimator):
        result = fit_views(views_of((6, 1, 128)), 0.95, estimator)
        torch.testing.assert_close(result.resultant, torch.full((6,), 0.95, dtype=torch.float64))
        # lambda (p - lambda^2) / (1 - lambda^2) = 1238.4 at p = 128, the paper's largest kappa
        cap = 1238.4 if estimator == "banerjee" else None
        cap = cap or inverse_bessel_ratio(torch.tensor(0.95, dtype=torch.float64), 128).item()
        assert result.kappa.tolist() == pytest.approx([cap] * 6, rel=2e-5)

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_one_view_without_shrinking_is_a_point(self, estimator):
        result = fit_views(views_of((2, 1, 8)), 1.0, estimator)
        assert result.kappa.tolist() == [math.inf, math.inf]

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_views_that_cancel_are_uniform(self, estimator):
        views = torch.tensor([[[2.0, 0.0], [-3.0, 0.0]]], requires_grad=True)
        result = fit_views(views, estimator=estimator)
        assert result.kappa.tolist() == result.resultant.tolist() == [0.0]
        sum(tensor.sum() for tensor in result).backward()
        assert views.grad.isfinite().all()

    @pytest.mark.parametrize("noise", [1e-2, 1e-3, 1e-4])
    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_views_that_nearly_coincide_keep_their_digits(self, noise, estimator):
        views = normalize(views_of((64, 1, 128)) + noise * views_of((64, 4, 128), 1), dim=-1)
        single = views.float()
        narrow = fit_views(single, 1.0, estimator).kappa.double()
        wide = fit_views(single.double(), 1.0, estimator).kappa
        # float32 normalisation moves every coordinate by up to 6e-8 of itself; subtraction of
        # R^2 from 1 would give 2e-3, 0.2 and infinity here.
        torch.testing.assert_close(narrow, wide, rtol=1e-8 / noise + 1e-6, atol=0)


class TestInvariance:
    @settings(max_examples=50, deadline=None)
    @given(shape=shapes, seed=st.integers(0, 999), estimator=st.sampled_from(ESTIMATORS))
    def test_order_and_length_of_views(self, shape, seed, estimator):
        views = views_of(shape, seed)
        order = torch.randperm(shape[1], generator=torch.Generator().manual_seed(seed))
        lengths = 0.1 + views_of((*shape[:2], 1), seed + 1).abs()
        expected = fit_views(views, estimator=estimator)
        for a, b in zip(fit_views((lengths * views)[:, order], estimator=estimator), expected):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)

    @settings(max_examples=30, deadline=None)
    @given(shape=shapes, seed=st.integers(0, 999), estimator=st.sampled_from(ESTIMATORS))
    def test_rotation(self, shape, seed, estimator):
        rotation, _ = torch.linalg.qr(views_of((shape[-1], shape[-1]), seed + 1))
        before = fit_views(views_of(shape, seed), estimator=estimator)
        after = fit_views(views_of(shape, seed) @ rotation, estimator=estimator)
        torch.testing.assert_close(after.mu, before.mu @ rotation, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(after.kappa, before.kappa, rtol=1e-10, atol=1e-12)

    def test_leading_dimensions(self):
        views = views_of((2, 3, 4, 8))
        result = fit_views(views)
        assert result.mu.shape == (2, 3, 8)
        assert result.kappa.shape == result.resultant.shape == (2, 3)
        assert fit_views(views[0, 0]).kappa.shape == ()
        torch.testing.assert_close(fit_views(views[1, 2]).kappa, result.kappa[1, 2])


class TestGradients:
    @pytest.mark.parametrize("estimator", ESTIMATORS)
    @pytest.mark.parametrize("m", [1, 3])
    def test_gradcheck(self, estimator, m):
        views = views_of((2, m, 5)).requires_grad_()
        assert gradcheck(lambda v: tuple(fit_views(v, 0.95, estimator)), views)
        assert gradgradcheck(lambda v: tuple(fit_views(v, 0.95, estimator)), views)


class TestInputs:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_is_computed_in_float32(self, dtype):
        views = views_of((2, 4, 16)).to(dtype)
        for half, full in zip(fit_views(views), fit_views(views.float())):
            assert half.dtype is torch.float32
            assert torch.equal(half, full)

    def test_autocast_changes_nothing(self):
        views = views_of((2, 4, 16), dtype=torch.float32)
        expected = fit_views(views)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for inside, outside in zip(fit_views(views), expected):
                assert torch.equal(inside, outside)

    @pytest.mark.parametrize("shape", [(8,), (3, 0, 8), (3, 4, 1), (3, 4, 0), ()])
    def test_bad_shape(self, shape):
        with pytest.raises(ValueError, match=r"views must have shape .* got shape \("):
            fit_views(torch.ones(shape))

    @pytest.mark.parametrize("bad", [[1.0, 2.0], None, torch.ones(2, 3, dtype=torch.int64)])
    def test_bad_type(self, bad):
        with pytest.raises(ValueError, match="views must be a floating-point tensor"):
            fit_views(bad)

    @pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
    def test_bad_features(self, value):
        views = torch.ones(2, 3, 4)
        views[1, 2] = value
        with pytest.raises(ValueError, match=r"feature at index \(1, 2\) has length"):
            fit_views(views)
        fit_views(views, validate_args=False)

    @pytest.mark.parametrize("shrink", [0, -0.5, 1.01, math.nan, "0.95"])
    def test_bad_shrink(self, shrink):
        with pytest.raises(ValueError, match=r"shrink must be in \(0, 1\]"):
            fit_views(torch.ones(2, 3), shrink)

    def test_bad_estimator(self):
        with pytest.raises(ValueError, match="estimator must be one of .*got 'sra'"):
            fit_views(torch.ones(2, 3), estimator="sra")

    def test_detach(self):
        result = fit_views(views_of((2, 3, 4)).requires_grad_())
        assert isinstance(result.detach(), ViewDistribution)
        assert not any(tensor.requires_grad for tensor in result.detach())
        assert result.p == 4
