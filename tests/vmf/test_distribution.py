import math

import pytest
import scipy.stats
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.distributions import VonMises
from torch.distributions import kl_divergence as torch_kl
from torch.nn.functional import normalize

from dsf.vmf import (
    VonMisesFisher,
    bessel_ratio,
    bessel_ratio_derivative,
    kl_divergence,
    one_minus_bessel_ratio,
)


def direction(p, *batch, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(*batch, p, generator=generator, dtype=dtype), dim=-1)


def vmf(p, kappa, **options):
    return VonMisesFisher(direction(p, **options), torch.tensor(kappa, dtype=torch.float64))


class TestDensity:
    @pytest.mark.parametrize(("p", "kappa"), [(2, 3.0), (3, 40.0), (10, 0.5), (64, 200.0)])
    def test_against_scipy(self, p, kappa):
        ours = vmf(p, kappa)
        theirs = scipy.stats.vonmises_fisher(ours.loc.numpy(), kappa)
        x = direction(p, 20, seed=1)
        expected = torch.from_numpy(theirs.logpdf(x.numpy()))
        torch.testing.assert_close(ours.log_prob(x), expected, rtol=1e-10, atol=1e-10)
        assert ours.entropy().item() == pytest.approx(theirs.entropy(), rel=1e-10)

    def test_on_the_circle_it_is_von_mises(self):
        angle = torch.linspace(-3, 3, 13, dtype=torch.float64)
        x = torch.stack([angle.cos(), angle.sin()], dim=-1)
        ours = VonMisesFisher(torch.tensor([1.0, 0.0], dtype=torch.float64), 2.5)
        theirs = VonMises(torch.tensor(0.0, dtype=torch.float64), 2.5)
        torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(angle), rtol=1e-6, atol=0)

    def test_uniform_at_zero(self):
        sphere = vmf(3, 0.0)
        assert sphere.log_prob(direction(3)).item() == pytest.approx(-math.log(4 * math.pi))
        assert sphere.entropy().item() == pytest.approx(math.log(4 * math.pi))
        assert sphere.mean.tolist() == [0, 0, 0]

    @pytest.mark.parametrize("p", [3, 128])
    def test_float32_keeps_its_digits_at_large_kappa(self, p):
        loc = direction(p)
        x = normalize(loc + 1e-3 * direction(p, 50, seed=1), dim=-1).float()
        narrow = VonMisesFisher(loc.float(), 1e6)
        wide = VonMisesFisher(loc.float().double(), 1e6, validate_args=False)
        error = narrow.log_prob(x).double() - wide.log_prob(x.double())
        assert error.abs().max() < 1e-3
        assert abs(narrow.entropy().double() - wide.entropy()) < 1e-3

    def test_gradients(self):
        loc, kappa = direction(4, 3).requires_grad_(), torch.tensor([0.5, 3.0, 30.0]).double()
        x = direction(4, 3, seed=1)
        arguments = (loc, kappa.requires_grad_())

        def log_prob_and_entropy(loc, kappa):
            distribution = VonMisesFisher(loc, kappa)
            return distribution.log_prob(x), distribution.entropy(), distribution.variance

        assert gradcheck(log_prob_and_entropy, arguments)
        assert gradgradcheck(log_prob_and_entropy, arguments)


class TestMoments:
    @pytest.mark.parametrize(("p", "kappa"), [(2, 1.0), (5, 0.0), (5, 20.0)])
    def test_mean_and_covariance_of_samples(self, p, kappa):
        distribution = vmf(p, kappa)
        x = distribution.sample((200_000,))
        assert (x.mean(dim=0) - distribution.mean).abs().max() < 0.006
        assert (x.T.cov() - distribution.covariance_matrix).abs().max() < 0.006
        torch.testing.assert_close(
            distribution.variance, distribution.covariance_matrix.diagonal(), rtol=1e-12, atol=0
        )
        assert torch.equal(distribution.mode, distribution.loc)

    def test_total_variance(self):
        # E|x|^2 = 1, so the trace of the covariance is 1 - A^2.
        distribution = VonMisesFisher(direction(17, 3), torch.tensor([0.1, 7.0, 4000.0]))
        ratio = bessel_ratio(distribution.concentration, 17)
        torch.testing.assert_close(distribution.variance.sum(-1), 1 - ratio**2, rtol=1e-9, atol=0)


class TestSampling:
    @pytest.mark.parametrize("p", [2, 3, 16, 128, 1024])
    @pytest.mark.parametrize("kappa", [0.0, 0.1, 10.0, 1000.0, 1e6])
    def test_mean_cosine_and_fit(self, p, kappa):
        n = 4000 if p == 1024 else 20_000
        distribution = vmf(p, kappa)
        x = distribution.sample((n,))
        assert (x.norm(dim=-1) - 1).abs().max() < 1e-14
        cosine = (x * distribution.loc).sum(dim=-1)
        k = distribution.concentration
        variance = bessel_ratio_derivative(k, p)
        error = (variance / n).sqrt()
        gap = 0.5 * (x - distribution.loc).square().sum(dim=-1)  # 1 - cosine, without rounding
        assert (gap.mean() - one_minus_bessel_ratio(k, p)).abs() < 4 * error
        assert (cosine.mean() - bessel_ratio(k, p)).abs() < 4 * error + 1e-15
        spread = (gap - gap.mean()).square()
        assert (spread.mean() - variance).abs() < 5 * spread.std() / math.sqrt(n)

        fitted = VonMisesFisher.fit(x)
        ratio = bessel_ratio(k, p).item()
        if ratio * math.sqrt(n) > 10:  # else the sample cannot tell kappa from 0
            # The mean of n samples is longer than A by (1 - A^2) / (2 n A).
            bias = (1 - ratio**2) / (2 * n * ratio) / variance
            assert (fitted.concentration - k).abs() < 4 * error / variance + 1.5 * bias
        else:
            assert fitted.concentration < k + 3 * p / math.sqrt(n)

    @pytest.mark.parametrize("p", [2, 3, 16])
    def test_distribution_of_the_cosine(self, p):
        # The cosine's density is exp(kappa t) (1 - t^2)^((p - 3) / 2) up to a constant.
        kappa = 4.0
        cosine = (vmf(p, kappa).sample((20_000,)) @ direction(p)).sort().values
        angle = torch.linspace(0, math.pi, 20_001, dtype=torch.float64)
        density = (kappa * angle.cos()).exp() * angle.sin() ** (p - 2)
        cumulative = torch.cumulative_trapezoid(density, angle)
        cumulative = 1 - torch.cat([torch.zeros(1), cumulative]) / cumulative[-1]
        index = torch.searchsorted(angle, cosine.clamp(-1, 1).acos())
        empirical = torch.arange(1, 20_001) / 20_000
        assert (cumulative[index] - empirical).abs().max() < 1.95 / math.sqrt(20_000)  # 0.1 %

    def test_isotropic_around_loc(self):
        distribution = vmf(6, 8.0)
        x = distribution.sample((100_000,))
        across = normalize(x - (x @ distribution.loc)[:, None] * distribution.loc, dim=-1)
        plane = torch.eye(6, dtype=x.dtype) - distribution.loc[:, None] * distribution.loc
        assert (across.T @ across / len(x) - plane / 5).abs().max() < 0.005
        assert across.mean(dim=0).norm() < 0.01

    def test_shapes_dtypes_and_seeds(self):
        loc = direction(5, 3, 1, dtype=torch.float32)
        distribution = VonMisesFisher(loc, torch.tensor([1.0, 100.0]))
        assert distribution.batch_shape == (3, 2)
        assert distribution.event_shape == (5,)
        assert distribution.sample().shape == (3, 2, 5)
        assert distribution.sample((4, 7)).shape == (4, 7, 3, 2, 5)
        assert distribution.sample((0,)).shape == (0, 3, 2, 5)
        assert distribution.sample().dtype is torch.float32
        torch.manual_seed(5)
        first = distribution.sample((9,))
        torch.manual_seed(5)
        assert torch.equal(first, distribution.sample((9,)))
        half = VonMisesFisher(loc.bfloat16(), 10.0)
        assert half.sample((2,)).dtype is torch.bfloat16

    def test_a_circle_has_two_sides(self, monkeypatch):
        distribution = vmf(2, 3.0)
        monkeypatch.setattr(torch, "randn", torch.zeros)
        x = distribution.sample((5,))
        torch.testing.assert_close(x.norm(dim=-1), torch.ones(5, dtype=x.dtype))

    def test_no_graph(self):
        loc = direction(5).requires_grad_()
        assert not VonMisesFisher(loc, 3.0).sample().requires_grad

    def test_mean_direction_on_either_side(self):
        for sign in (-1.0, 1.0):
            loc = torch.zeros(4, dtype=torch.float64)
            loc[0] = sign
            assert VonMisesFisher(loc, 1e6).sample((10,)).mean(dim=0)[0] * sign > 0.99

    def test_nan_does_not_hang(self):
        distribution = VonMisesFisher(direction(4), math.nan, validate_args=False)
        assert distribution.sample().isnan().any()


def test_samples_that_cancel_are_uniform():
    samples = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    uniform, other = VonMisesFisher.fit(samples).concentration
    assert uniform == 0
    assert other > 0
    assert VonMisesFisher.fit(samples).sample((3,)).isfinite().all()


class TestProtocol:
    def test_kl_is_registered(self):
        i = VonMisesFisher(direction(7, 3), torch.tensor([1.0, 20.0, 0.0]))
        j = VonMisesFisher(direction(7, 3, seed=1), torch.tensor([2.0, 0.0, 5.0]))
        cos = (i.loc * j.loc).sum(dim=-1)
        expected = kl_divergence(i.concentration, j.concentration, cos, 7)
        torch.testing.assert_close(torch_kl(i, j), expected)
        assert torch_kl(i, i).tolist() == [0, 0, 0]
        with pytest.raises(ValueError, match="got p = 7 and 8"):
            torch_kl(i, vmf(8, 1.0))

    def test_kl_against_samples(self):
        i, j = vmf(16, 30.0), vmf(16, 12.0, seed=1)
        x = i.sample((100_000,))
        ratio = i.log_prob(x) - j.log_prob(x)
        assert abs(ratio.mean() - torch_kl(i, j)) < 4 * ratio.std() / math.sqrt(len(x))

    def test_expand(self):
        distribution = vmf(4, 3.0)
        wide = distribution.expand((2, 3))
        assert isinstance(wide, VonMisesFisher)
        assert wide.batch_shape == (2, 3)
        assert wide.sample((5,)).shape == (5, 2, 3, 4)
        assert torch.equal(wide.entropy(), distribution.entropy().expand(2, 3))
        x = direction(4)
        assert torch.equal(wide.log_prob(x), distribution.log_prob(x).expand(2, 3))

    def test_independent_wrapper(self):
        distribution = torch.distributions.Independent(
            VonMisesFisher(direction(4, 3), torch.ones(3)), 1
        )
        assert distribution.log_prob(distribution.sample((2,))).shape == (2,)

    def test_precisions_are_promoted(self):
        distribution = VonMisesFisher(direction(4).float(), torch.tensor(3.0, dtype=torch.float64))
        assert distribution.loc.dtype is torch.float64
        assert "VonMisesFisher(loc: torch.Size([4])" in repr(distribution)

    @pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_directions_in_half_precision_become_unit_vectors(self, half, dtype):
        loc = direction(128, 6, dtype=torch.float32).to(half)
        distribution = VonMisesFisher(loc, torch.full((6,), 50.0, dtype=dtype))
        assert distribution.loc.dtype is dtype
        torch.testing.assert_close(distribution.loc, normalize(loc.to(dtype), dim=-1))
        with pytest.raises(ValueError, match="parameter loc"):
            VonMisesFisher(2 * loc, torch.ones(6))


class TestInputs:
    def test_bad_loc(self):
        with pytest.raises(ValueError, match="parameter loc"):
            VonMisesFisher(torch.tensor([1.0, 1.0]), 1.0)
        with pytest.raises(ValueError, match="parameter loc"):
            VonMisesFisher(torch.tensor([math.nan, 1.0]), 1.0)
        with pytest.raises(ValueError, match=r"p must be an int >= 2.*got 1"):
            VonMisesFisher(torch.ones(3, 1), 1.0)
        with pytest.raises(ValueError, match=r"loc must be .* got shape \(\)"):
            VonMisesFisher(torch.tensor(1.0), 1.0)
        with pytest.raises(ValueError, match=r"loc must be .* got list"):
            VonMisesFisher([1.0, 0.0], 1.0)

    @pytest.mark.parametrize("bad", [-1.0, math.nan])
    def test_bad_concentration(self, bad):
        with pytest.raises(ValueError, match=f"parameter concentration.*{bad}"):
            vmf(3, bad)

    def test_checks_do_not_hang_on_a_global_default(self):
        # torch.compile sets it to False as a side effect.
        torch.distributions.Distribution.set_default_validate_args(False)
        try:
            with pytest.raises(ValueError, match="parameter concentration"):
                vmf(3, -1.0)
        finally:
            torch.distributions.Distribution.set_default_validate_args(True)
        VonMisesFisher(direction(3), -1.0, validate_args=False)

    def test_shapes_that_do_not_broadcast(self):
        with pytest.raises(ValueError, match=r"concentration of shape \(2,\).*\(3,\) of loc"):
            VonMisesFisher(direction(4, 3), torch.ones(2))

    def test_bad_value(self):
        with pytest.raises(ValueError, match="value"):
            vmf(3, 1.0).log_prob(torch.tensor([1.0, 1.0, 1.0]))

    def test_bad_samples(self):
        with pytest.raises(ValueError, match="at least one view"):
            VonMisesFisher.fit(torch.ones(0, 3))
        with pytest.raises(ValueError, match="non-zero length"):
            VonMisesFisher.fit(torch.zeros(2, 3))
