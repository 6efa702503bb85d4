import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from exact import exact_kl, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import normalize

from dsf.vmf import (
    ViewDistribution,
    bessel_ratio,
    bhattacharyya,
    chi_squared,
    fit_views,
    geometric_jensen_shannon,
    hellinger,
    jeffreys,
    kl_divergence,
    log_normalizer,
    log_partition,
    renyi,
)


def log_chi_squared(*args, **options):
    return chi_squared(*args, log=True, **options)


def renyi_of(alpha):
    return lambda *args, **options: renyi(*args, alpha=alpha, **options)


DIVERGENCES = {
    "kl": kl_divergence,
    "jeffreys": jeffreys,
    "renyi-0.3": renyi_of(0.3),
    "renyi-3": renyi_of(3.0),
    "bhattacharyya": bhattacharyya,
    "hellinger": hellinger,
    "chi-squared": chi_squared,
    "log-chi-squared": log_chi_squared,
    "geometric-js": geometric_jensen_shannon,
}
every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
concentrations = st.one_of(st.just(0.0), st.floats(-4, 6).map(lambda exponent: 10**exponent))
dimensions = st.one_of(st.integers(2, 64), st.sampled_from([128, 1024, 65536]))


def double(*values):
    return [torch.tensor(value, dtype=torch.float64) for value in values]


def distributions(count, p, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(count, 1, p, generator=generator, dtype=dtype)
    spread = torch.rand(count, 1, 1, generator=generator, dtype=dtype)
    return fit_views(direction + spread * torch.randn(count, 4, p, generator=generator).to(dtype))


class TestAgainstReference:
    KINDS = {
        "kl": kl_divergence,
        "kl_omc": kl_divergence,
        "renyi": renyi,
        "bhattacharyya": bhattacharyya,
        "jeffreys": jeffreys,
        "log1p_chi2": log_chi_squared,
    }

    def evaluate(self, kind, records, dtype):
        """Yield (record, value in dtype, value in float64 at the same inputs)."""
        groups = defaultdict(list)
        for record in records:
            groups[record["p"], record.get("alpha")].append(record)
        last = "one_minus_cos" if kind == "kl_omc" else "cos"
        for (p, alpha), group in groups.items():
            options = {"p": p} if alpha is None else {"p": p, "alpha": alpha}
            columns = [
                torch.tensor([record[name] for record in group], dtype=dtype)
                for name in ("k_i", "k_j", last)
            ]
            results = []
            for k_i, k_j, third in (columns, [column.double() for column in columns]):
                results.append(self.KINDS[kind](k_i, k_j, **{last: third}, **options).tolist())
            yield from zip(group, *results, strict=True)

    @pytest.mark.parametrize("kind", KINDS)
    def test_float64(self, reference, kind):
        assert reference[kind]
        for record, value, _ in self.evaluate(kind, reference[kind], torch.float64):
            truth = float(record["value"])  # 16 digits are enough for a bound of 1e-12
            assert abs(value - truth) <= 1e-12 * truth, record
            assert value >= 0

    @pytest.mark.parametrize("kind", KINDS)
    def test_float32_against_float64(self, reference, kind):
        for record, value, truth in self.evaluate(kind, reference[kind], torch.float32):
            assert abs(value - truth) <= 2e-5 * truth, record
            assert value >= 0


class TestAgainstBallArithmetic:
    @pytest.mark.parametrize("p", [2, 3, 16, 128])
    def test_kl_of_large_concentrations(self, p):
        """Where kappa - Phi is the logarithm of kappa, whose differences cancel."""
        k_i = torch.logspace(0, 6, 13, dtype=torch.float64)[:, None]
        k_j = k_i * torch.logspace(-1.5, 1.5, 31, dtype=torch.float64)
        k_j = k_j[:, k_j[0] != k_i[0]]
        for dtype, bound in ((torch.float64, 2e-13), (torch.float32, 2e-5)):
            i, j = k_i.to(dtype).expand_as(k_j).flatten(), k_j.to(dtype).flatten()
            values = kl_divergence(i, j, p=p, one_minus_cos=torch.zeros_like(i))
            for value, a, b in zip(values.tolist(), i.tolist(), j.tolist(), strict=True):
                assert relative_error(value, exact_kl(a, b, 0.0, p)) <= bound, (dtype, a, b)

    @settings(max_examples=200, deadline=None)
    @given(
        p=st.one_of(st.integers(2, 64), st.sampled_from([128, 1024, 16384])),
        k=st.floats(-3, 6).map(lambda exponent: 10**exponent),
        change=st.floats(-14, 1.5).map(lambda exponent: 10**exponent),
        sign=st.sampled_from([-1, 1]),
        gap=st.one_of(st.just(0.0), st.floats(-14, 0.3).map(lambda exponent: 10**exponent)),
    )
    def test_kl_at_any_distance(self, p, k, change, sign, gap):
        k_j = k * (1 + change) if sign > 0 else k / (1 + change)
        for dtype, bound in ((torch.float64, 2e-13), (torch.float32, 2e-5)):
            i, j, g = (torch.tensor(value, dtype=dtype) for value in (k, k_j, gap))
            value = kl_divergence(i, j, p=p, one_minus_cos=g).item()
            if i == j and gap == 0:
                assert value == 0
            else:
                truth = exact_kl(i.item(), j.item(), g.item(), p)
                assert relative_error(value, truth, floor=1e-30) <= bound, dtype


class TestAgainstQuadrature:
    """On S^2 the densities can be integrated: an independent check of every closed form."""

    @pytest.fixture
    def grid(self):
        z, weights = np.polynomial.legendre.leggauss(400)
        phi = np.arange(400) * (2 * math.pi / 400)
        z, phi = np.meshgrid(z, phi, indexing="ij")
        sine = np.sqrt(1 - z**2)
        points = np.stack([sine * np.cos(phi), sine * np.sin(phi), z], axis=-1)
        area = np.repeat(weights[:, None] * (2 * math.pi / 400), 400, axis=1)
        return torch.from_numpy(points), torch.from_numpy(area)

    @pytest.mark.parametrize(("k_i", "k_j", "cos"), [(5, 2, 0.3), (0, 4, 1), (30, 25, -0.6)])
    def test_closed_forms(self, grid, k_i, k_j, cos):
        points, area = grid
        k_i, k_j, cos = double(k_i, k_j, cos)
        mu_j = torch.stack([(1 - cos**2).sqrt(), torch.zeros_like(cos), cos])
        log_i = log_normalizer(k_i, 3) + k_i * points[..., 2]
        log_j = log_normalizer(k_j, 3) + k_j * points @ mu_j

        def integral(values):
            return (values * area).sum()

        f_i, f_j = log_i.exp(), log_j.exp()
        assert integral(f_i).item() == pytest.approx(1, rel=1e-12)
        log_m = (log_i + log_j) / 2
        log_m = log_m - integral(log_m.exp()).log()
        kl, reverse = integral(f_i * (log_i - log_j)), integral(f_j * (log_j - log_i))
        affinity = integral((f_i * f_j).sqrt())
        geometric = integral(f_i * (log_i - log_m)) + integral(f_j * (log_j - log_m))
        expected = {
            kl_divergence: kl,
            jeffreys: kl + reverse,
            bhattacharyya: -affinity.log(),
            hellinger: 1 - affinity,
            chi_squared: integral((f_i - f_j) ** 2 / f_j),
            geometric_jensen_shannon: geometric / 2,
        }
        for alpha in (0.25, 0.9, 1.0, 1.1, 3.0):
            power = integral((alpha * log_i + (1 - alpha) * log_j).exp())
            expected[renyi_of(alpha)] = kl if alpha == 1 else power.log() / (alpha - 1)
        for divergence, truth in expected.items():
            value = divergence(k_i, k_j, cos, 3).item()
            assert value == pytest.approx(truth.item(), rel=1e-9), divergence


class TestProperties:
    @every_divergence
    @settings(max_examples=60, deadline=None)
    @given(
        k_i=concentrations,
        k_j=concentrations,
        cos=st.floats(-1, 1),
        p=dimensions,
        dtype=st.sampled_from([torch.float32, torch.float64]),
    )
    def test_never_negative(self, divergence, k_i, k_j, cos, p, dtype):
        k_i, k_j, cos = (torch.tensor(value, dtype=dtype) for value in (k_i, k_j, cos))
        value = divergence(k_i, k_j, cos, p)
        assert value >= 0  # and so not NaN
        assert divergence is chi_squared or value.isfinite()

    @every_divergence
    @settings(max_examples=30, deadline=None)
    @given(kappa=concentrations, p=dimensions)
    def test_zero_at_equality(self, divergence, kappa, p):
        for dtype in (torch.float32, torch.float64):
            k = torch.tensor(kappa, dtype=dtype)
            assert divergence(k, k, torch.ones_like(k), p) == 0

    @pytest.mark.parametrize(
        "divergence", [jeffreys, bhattacharyya, hellinger, geometric_jensen_shannon]
    )
    def test_symmetric_ones(self, divergence):
        k_i, k_j = double([0.5, 3.0, 70.0], [0.6, 300.0, 69.0])
        cos = torch.tensor([0.1, -0.8, 0.99999], dtype=torch.float64)
        torch.testing.assert_close(
            divergence(k_i, k_j, cos, 20), divergence(k_j, k_i, cos, 20), rtol=1e-12, atol=0
        )

    def test_jeffreys_is_both_kl(self):
        k_i, k_j, cos = double([0.5, 3.0, 70.0], [0.6, 300.0, 69.0], [0.1, -0.8, 0.99999])
        both = kl_divergence(k_i, k_j, cos, 20) + kl_divergence(k_j, k_i, cos, 20)
        torch.testing.assert_close(jeffreys(k_i, k_j, cos, 20), both, rtol=1e-12, atol=0)

    def test_renyi_rises_with_its_order_through_kl(self):
        k_i, k_j, cos = double(30.0, 45.0, 0.7)
        orders = [0.1, 0.5, 0.999, 1 - 1e-9, 1.0, 1 + 1e-9, 1.001, 2.0, 10.0]
        values = [renyi(k_i, k_j, cos, 64, alpha).item() for alpha in orders]
        assert values == sorted(values)
        assert values[3] == pytest.approx(values[4], rel=1e-8)
        assert values[5] == pytest.approx(values[4], rel=1e-8)

    def test_chi_squared_overflows_but_its_logarithm_does_not(self):
        k_i, k_j, cos = double(1e8, 10.0, 0.0)
        assert chi_squared(k_i, k_j, cos, 128) == math.inf
        assert chi_squared(k_i, k_j, cos, 128, log=True).isfinite()

    def test_hellinger_distance(self):
        k_i, k_j, cos = double(10.0, 20.0, 0.5)
        square = hellinger(k_i, k_j, cos, 8)
        assert hellinger(k_i, k_j, cos, 8, squared=False) ** 2 == pytest.approx(square.item())

    @every_divergence
    def test_cosine_past_one_is_one(self, divergence):
        k = torch.tensor([3.0, 5.0], requires_grad=True)
        past = divergence(k, k.flip(0), torch.tensor(1.0000002), 8)
        assert torch.equal(past, divergence(k, k.flip(0), torch.tensor(1.0), 8))
        past.sum().backward()
        assert k.grad.isfinite().all()


class TestGradients:
    @every_divergence
    @pytest.mark.parametrize("p", [2, 5, 128])
    def test_gradcheck(self, divergence, p):
        k_i, k_j, cos = double([0.5, 4.0, 9.0], [0.8, 4.1, 2.0], [0.3, 0.9, -0.7])
        arguments = [tensor.requires_grad_() for tensor in (k_i, k_j, cos)]
        assert gradcheck(lambda i, j, c: divergence(i, j, c, p), arguments)
        assert gradgradcheck(lambda i, j, c: divergence(i, j, c, p), arguments)

    @every_divergence
    def test_through_one_minus_cos(self, divergence):
        arguments = [t.requires_grad_() for t in double([4.0, 9.0], [4.1, 2.0], [1e-3, 1.2])]
        assert gradcheck(lambda i, j, g: divergence(i, j, p=6, one_minus_cos=g), arguments)

    @every_divergence
    def test_broadcast(self, divergence):
        k_i, k_j, cos = double([[0.5], [4.0]], [0.8, 4.1, 2.0], 0.3)
        arguments = [tensor.requires_grad_() for tensor in (k_i, k_j, cos)]
        assert divergence(*arguments, 5).shape == (2, 3)
        assert gradcheck(lambda i, j, c: divergence(i, j, c, 5), arguments)

    @every_divergence
    def test_pairwise(self, divergence):
        i, j = distributions(3, 6, 0), distributions(4, 6, 1)

        def matrix(mu_i, k_i, mu_j, k_j):
            i = ViewDistribution(mu_i, k_i, k_i)
            return divergence(i, ViewDistribution(mu_j, k_j, k_j), pairwise=True)

        tensors = (i.mu, i.kappa.clamp(max=5), j.mu, j.kappa.clamp(max=4))  # for chi-squared
        arguments = [tensor.clone().requires_grad_() for tensor in tensors]
        assert gradcheck(matrix, arguments)
        assert gradgradcheck(matrix, arguments)

    @every_divergence
    def test_finite_where_a_direction_vanishes(self, divergence):
        k_i, k_j, cos = double([0.0, 0.0, 3.0, 5.0], [0.0, 2.0, 0.0, 5.0], [1.0, 0.2, 0.2, -1.0])
        arguments = [tensor.requires_grad_() for tensor in (k_i, k_j, cos)]
        for gradient in torch.autograd.grad(divergence(*arguments, 4).sum(), arguments):
            assert gradient.isfinite().all()


class TestPairwise:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("p", [3, 128, 1024])
    def test_kl_stays_within_its_bound(self, p, dtype):
        i, j = distributions(40, p, 0, dtype), distributions(50, p, 1, dtype)
        j = ViewDistribution(*(torch.cat(pair) for pair in zip(i, j, strict=True)))
        matrix = kl_divergence(i, j, pairwise=True)
        assert matrix.shape == (40, 90)
        wide_i, wide_j = (ViewDistribution(*(t.double() for t in side)) for side in (i, j))
        k_i, k_j = wide_i.kappa[:, None], wide_j.kappa[None, :]
        cos = normalize(wide_i.mu, dim=-1) @ normalize(wide_j.mu, dim=-1).T
        truth = kl_divergence(k_i, k_j, cos.clamp(-1, 1), p)
        ratio, phi_i, phi_j = bessel_ratio(k_i, p), log_partition(k_i, p), log_partition(k_j, p)
        scale = ratio * k_i + ratio * k_j + phi_i + phi_j
        assert ((matrix.double() - truth).abs() <= 8 * torch.finfo(dtype).eps * scale).all()

    @every_divergence
    def test_agrees_with_elementwise(self, divergence):
        i, j = distributions(5, 12, 0), distributions(7, 12, 1)
        matrix = divergence(i, j, pairwise=True)
        expected = divergence(i.kappa[:, None], j.kappa[None, :], i.mu @ j.mu.T, 12)
        torch.testing.assert_close(matrix, expected, rtol=1e-10, atol=1e-12)
        aligned = ViewDistribution(*(tensor[:5] for tensor in j))
        torch.testing.assert_close(
            divergence(i, aligned), matrix[:, :5].diagonal(), rtol=1e-10, atol=1e-12
        )

    @every_divergence
    def test_leading_dimensions(self, divergence):
        i, j = distributions(6, 9, 0), distributions(8, 9, 1)
        i2 = ViewDistribution(*(t.unflatten(0, (2, 3)) for t in i))
        j2 = ViewDistribution(*(t.unflatten(0, (2, 4)) for t in j))
        blocks = divergence(i2, j2, pairwise=True)
        assert blocks.shape == (2, 3, 4)
        whole = divergence(i, j, pairwise=True)
        torch.testing.assert_close(blocks[1], whole[3:, 4:])

    def test_autocast_changes_nothing(self):
        i, j = distributions(5, 12, 0, torch.float32), distributions(7, 12, 1, torch.float32)
        expected = {name: f(i, j, pairwise=True) for name, f in DIVERGENCES.items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for name, divergence in DIVERGENCES.items():
                assert torch.equal(divergence(i, j, pairwise=True), expected[name]), name


class TestInputs:
    @every_divergence
    def test_bad_values(self, divergence):
        good = torch.ones(2)
        for bad in (-1.0, math.nan, math.inf):
            for name, arguments in {
                "kappa_i": (torch.tensor([1.0, bad]), good),
                "kappa_j": (good, torch.tensor([1.0, bad])),
            }.items():
                with pytest.raises(ValueError, match=f"{name} must be .* got {bad}"):
                    divergence(*arguments, good, 8)
        with pytest.raises(ValueError, match=r"kappa_j must be in \[0, 4\.6.* got 7\.3"):
            divergence(good, torch.tensor([1.0, 2.0**66]), good, 8)
        for bad in (1.5, -1.5, math.nan):
            with pytest.raises(ValueError, match=rf"cos must be in \[-1, 1\].* got {bad}"):
                divergence(good, good, torch.tensor([1.0, bad]), 8)

    @every_divergence
    def test_missing_and_doubled_arguments(self, divergence):
        k, view = torch.ones(2), distributions(2, 4, 0)
        with pytest.raises(ValueError, match="p must be given"):
            divergence(k, k, k)
        with pytest.raises(ValueError, match="exactly one of cos and one_minus_cos"):
            divergence(k, k, p=3)
        with pytest.raises(ValueError, match="exactly one of cos and one_minus_cos"):
            divergence(k, k, k, 3, one_minus_cos=k)
        with pytest.raises(ValueError, match="p must be an int >= 2.*got 1"):
            divergence(k, k, k, 1)
        with pytest.raises(ValueError, match="p follows from two ViewDistributions; got p=4"):
            divergence(view, view, p=4)
        with pytest.raises(ValueError, match="expected two ViewDistributions"):
            divergence(view, k)
        with pytest.raises(ValueError, match="expected two ViewDistributions"):
            divergence(k, k, pairwise=True)
        with pytest.raises(ValueError, match="one dimension; got p = 4 and 5"):
            divergence(view, distributions(2, 5, 0), pairwise=True)
        with pytest.raises(ValueError, match=r"do not broadcast: kappa_i \(2,\), kappa_j \(3,\)"):
            divergence(k, torch.ones(3), k, 3)

    @pytest.mark.parametrize("alpha", [0, -1, math.nan, math.inf, "2", torch.tensor(2.0)])
    def test_bad_order(self, alpha):
        with pytest.raises(ValueError, match="alpha must be a finite Python number > 0"):
            renyi(torch.ones(1), torch.ones(1), torch.ones(1), 3, alpha)

    def test_numbers_take_the_precision_of_tensors(self):
        k = torch.tensor(3.0, dtype=torch.float64)
        third = torch.tensor(1 / 3, dtype=torch.float64)
        assert kl_divergence(k, 2.0, 1 / 3, 8) == kl_divergence(k, 2 * torch.ones_like(k), third, 8)
