import math
from collections import defaultdict
from decimal import Decimal

import numpy as np
import pytest
import torch
from exact import exact, relative_error
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from dsf.vmf import (
    bessel_ratio,
    bessel_ratio_derivative,
    inverse_bessel_ratio,
    kappa_minus_log_partition,
    log_iv,
    log_normalizer,
    log_partition,
    one_minus_bessel_ratio,
)
from dsf.vmf.special import ratio_over_kappa

FUNCTIONS = {
    "log_partition": log_partition,
    "kappa_minus_log_partition": kappa_minus_log_partition,
    "log_normalizer": log_normalizer,
    "bessel_ratio": bessel_ratio,
    "one_minus_bessel_ratio": one_minus_bessel_ratio,
    "bessel_ratio_derivative": bessel_ratio_derivative,
}
# Name in the reference file: function of (input, p or nu), name of the input, bound, floor.
KINDS = {
    "log_partition": (log_partition, "k", 1e-14, 0),
    "k_minus_log_partition": (kappa_minus_log_partition, "k", 3e-14, 0),
    "log_c": (log_normalizer, "k", 1e-14, 1),
    "bessel_ratio": (bessel_ratio, "k", 1e-14, 0),
    "one_minus_bessel_ratio": (one_minus_bessel_ratio, "k", 1e-14, 0),
    "bessel_ratio_deriv": (bessel_ratio_derivative, "k", 1e-14, 0),
    "inv_bessel_ratio": (inverse_bessel_ratio, "R", 1e-14, 0),
    "log_iv": (lambda k, nu: log_iv(nu, k), "k", 1e-14, 1),
}
DIMENSIONS = [2, 3, 4, 17, 49, 50, 128, 1023, 65536]
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
# A difference of floats could not show an error below their last digit; Decimal keeps 28.
exactly = Decimal


def by_parameter(records):
    groups = defaultdict(list)
    for record in records:
        groups[record.get("p", record.get("nu"))].append(record)
    return groups.items()


def worst_error(values, truths, floor):
    return max(
        float(abs(exactly(value) - truth) / max(abs(truth), exactly(floor)))
        for value, truth in zip(values, truths, strict=True)
    )


class TestAgainstReference:
    @pytest.mark.parametrize("kind", KINDS)
    def test_float64(self, reference, kind):
        function, name, bound, floor = KINDS[kind]
        assert reference[kind]
        for parameter, records in by_parameter(reference[kind]):
            inputs = torch.tensor([record[name] for record in records], dtype=torch.float64)
            truths = [exactly(record["value"]) for record in records]
            error = worst_error(function(inputs, parameter).tolist(), truths, floor)
            assert error <= bound, (kind, parameter)

    @pytest.mark.parametrize("kind", KINDS)
    def test_float32_against_float64(self, reference, kind):
        function, name, _, floor = KINDS[kind]
        bound = 1e-5 if floor else 2e-6  # log C and log I lose digits where they cross zero
        for parameter, records in by_parameter(reference[kind]):
            inputs = torch.tensor([record[name] for record in records], dtype=torch.float32)
            if kind == "inv_bessel_ratio":
                inputs = inputs[inputs < 1]
            values = function(inputs, parameter)
            assert values.dtype is torch.float32
            truths = [exactly(value) for value in function(inputs.double(), parameter).tolist()]
            assert worst_error(values.tolist(), truths, floor) <= bound, (kind, parameter)

    @pytest.mark.parametrize(
        ("function", "derivative"),
        [
            (log_partition, "bessel_ratio"),
            (bessel_ratio, "bessel_ratio_deriv"),
            (kappa_minus_log_partition, "one_minus_bessel_ratio"),
        ],
    )
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_first_derivative(self, reference, function, derivative, dtype):
        for p, records in by_parameter(reference[derivative]):
            kappa = torch.tensor([r["k"] for r in records], dtype=dtype, requires_grad=True)
            function(kappa, p).sum().backward()
            if dtype is torch.float64:
                truths = [exactly(record["value"]) for record in records]
                assert worst_error(kappa.grad.tolist(), truths, 0) <= 1e-14, p
            else:
                wide = KINDS[derivative][0](kappa.detach().double(), p)
                truths = [exactly(value) for value in wide.tolist()]
                assert worst_error(kappa.grad.tolist(), truths, 0) <= 2e-6, p

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_second_derivative_of_log_partition(self, reference, dtype):
        for p, records in by_parameter(reference["bessel_ratio_deriv"]):
            kappa = torch.tensor([r["k"] for r in records], dtype=dtype, requires_grad=True)
            (first,) = torch.autograd.grad(log_partition(kappa, p).sum(), kappa, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), kappa)
            assert torch.equal(second, bessel_ratio_derivative(kappa.detach(), p))


class TestAgainstBallArithmetic:
    BOUNDS = {  # float64, float32
        "log_partition": (1.5e-15, 6e-7),
        "bessel_ratio": (1.5e-15, 6e-7),
        "one_minus_bessel_ratio": (1.5e-15, 6e-7),
        "bessel_ratio_derivative": (3e-15, 1.2e-6),
        "kappa_minus_log_partition": (1e-14, 2e-6),
    }

    @example(p=3, kappa=10**7.265625)  # where the roundings of a recurrence add up
    @settings(max_examples=300, deadline=None)
    @given(
        p=st.one_of(
            st.integers(2, 80),
            st.floats(1, 16).map(lambda exponent: int(2**exponent)),
        ),
        kappa=st.floats(-8, 8).map(lambda exponent: 10**exponent),
    )
    def test_random_points(self, p, kappa):
        for dtype, which in ((torch.float64, 0), (torch.float32, 1)):
            k = torch.tensor(kappa, dtype=dtype)
            truth = exact(k.item(), p)
            for name, bounds in self.BOUNDS.items():
                value = FUNCTIONS[name](k, p).item()
                assert relative_error(value, getattr(truth, name)) <= bounds[which], (name, dtype)

    @settings(max_examples=100, deadline=None)
    @given(p=st.integers(2, 4096), kappa=st.floats(-6, 6).map(lambda exponent: 10**exponent))
    def test_second_derivative_of_the_ratio(self, p, kappa):
        k = torch.tensor(kappa, dtype=torch.float64, requires_grad=True)
        bessel_ratio_derivative(k, p).backward()
        _, a, _, slope, _, _ = exact(kappa, p)
        truth = -2 * a * slope - (p - 1) * (slope / kappa - a / kappa / kappa)
        assert relative_error(k.grad.item(), truth) <= 1e-12


class TestGradients:
    KAPPA = (0.05, 0.7, 3.0, 11.0, 40.0)

    @every_function
    @pytest.mark.parametrize("p", [2, 3, 17, 49, 50, 128])
    def test_gradcheck(self, function, p):
        kappa = torch.tensor(self.KAPPA, dtype=torch.float64, requires_grad=True)
        assert gradcheck(lambda k: function(k, p), kappa)
        assert gradgradcheck(lambda k: function(k, p), kappa)

    @pytest.mark.parametrize("nu", [0.0, 0.3, 0.5, 7.0, 63.5])
    def test_log_iv(self, nu):
        x = torch.tensor(self.KAPPA, dtype=torch.float64, requires_grad=True)
        assert gradcheck(lambda x: log_iv(nu, x), x)
        assert gradgradcheck(lambda x: log_iv(nu, x), x)

    @pytest.mark.parametrize("p", [2, 3, 17, 128])
    def test_inverse(self, p):
        r = torch.tensor([0.02, 0.3, 0.55, 0.8], dtype=torch.float64, requires_grad=True)
        assert gradcheck(lambda r: inverse_bessel_ratio(r, p), r)
        assert gradgradcheck(lambda r: inverse_bessel_ratio(r, p), r)

    def test_complement_of_the_argument_leaves_the_gradient_alone(self):
        rest = torch.tensor([0.4, 1e-3], dtype=torch.float64, requires_grad=True)
        assert gradcheck(lambda rest: inverse_bessel_ratio(1 - rest, 5, one_minus_r=rest), rest)

    @every_function
    @pytest.mark.parametrize("p", DIMENSIONS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_finite_over_the_whole_range(self, function, p, dtype):
        kappa = torch.tensor([0.0, 1e-30, 1e-8, 1.0, 1e4, 1e8, 1e12], dtype=dtype)
        kappa.requires_grad_()
        value = function(kappa, p)
        (first,) = torch.autograd.grad(value.sum(), kappa, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), kappa)
        assert value.isfinite().all()
        assert first.isfinite().all()
        assert second.isfinite().all()

    def test_vmap_and_functional_gradients(self):
        kappa = torch.linspace(0.1, 30, 6, dtype=torch.float64)
        gradients = torch.func.vmap(torch.func.grad(lambda k: log_partition(k, 12)))(kappa)
        torch.testing.assert_close(gradients, bessel_ratio(kappa, 12), rtol=1e-14, atol=0)


class TestValues:
    @pytest.mark.parametrize("p", DIMENSIONS)
    def test_at_zero(self, p):
        zero = torch.zeros(1, dtype=torch.float64)
        area = math.log(2) + p / 2 * math.log(math.pi) - math.lgamma(p / 2)
        assert log_partition(zero, p).item() == 0
        assert bessel_ratio(zero, p).item() == 0
        assert one_minus_bessel_ratio(zero, p).item() == 1
        assert bessel_ratio_derivative(zero, p).item() == pytest.approx(1 / p, rel=1e-15)
        assert log_normalizer(zero, p).item() == pytest.approx(-area, rel=1e-15)
        assert inverse_bessel_ratio(zero, p).item() == 0
        assert ratio_over_kappa(zero, p).item() == pytest.approx(1 / p, rel=1e-15)

    @pytest.mark.parametrize("p", DIMENSIONS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_at_infinity(self, p, dtype):
        infinity = torch.tensor(math.inf, dtype=dtype)
        assert log_partition(infinity, p) == math.inf
        assert bessel_ratio(infinity, p) == 1
        assert kappa_minus_log_partition(infinity, p) == math.inf
        assert one_minus_bessel_ratio(infinity, p) == 0
        assert bessel_ratio_derivative(infinity, p) == 0
        assert log_iv(p / 2 - 1, infinity) == math.inf
        assert inverse_bessel_ratio(torch.ones((), dtype=dtype), p) == math.inf

    @pytest.mark.parametrize("p", DIMENSIONS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_enormous(self, p, dtype):
        """Where 1 - A_p = (p - 1) / (2 kappa) to the last digit."""
        lowest, highest = (14, 38) if dtype is torch.float32 else (22, 306)
        kappa = torch.logspace(lowest, highest, 200, dtype=dtype).requires_grad_()
        wide, half = kappa.detach().double(), (p - 1) / 2
        psi = kappa_minus_log_partition(kappa, p)
        (slope,) = torch.autograd.grad(psi.sum(), kappa, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), kappa)
        start = kappa_minus_log_partition(wide[0], p) - half * wide[0].log()
        bound = 2e-6 if dtype is torch.float32 else 1e-13
        tiny = torch.finfo(dtype).tiny
        for ours, truth in (
            (psi, start + half * wide.log()),
            (slope, half / wide),
            (-bend, half / wide / wide),
        ):
            torch.testing.assert_close(ours.double(), truth, rtol=bound, atol=tiny)
        rest = slope.detach()
        again = inverse_bessel_ratio(1 - rest, p, one_minus_r=rest)
        torch.testing.assert_close(again.double(), wide, rtol=bound, atol=0)

    def test_closed_form_on_the_sphere(self):
        kappa = torch.linspace(0.5, 40, 50, dtype=torch.float64)
        expected = torch.log(torch.sinh(kappa) / kappa)
        torch.testing.assert_close(log_partition(kappa, 3), expected, rtol=1e-14, atol=0)
        expected = 1 / torch.tanh(kappa) - 1 / kappa
        torch.testing.assert_close(bessel_ratio(kappa, 3), expected, rtol=1e-13, atol=0)

    @every_function
    def test_monotone_in_kappa(self, function):
        kappa = torch.logspace(-6, 7, 4001, dtype=torch.float64)
        rising = function in (log_partition, kappa_minus_log_partition, bessel_ratio)
        for p in (2, 3, 9, 48, 49, 128, 4096):
            steps = function(kappa, p).diff()
            allowed = 4e-16 * function(kappa, p).abs()[1:]  # a rounding may turn a flat stretch
            assert ((steps if rising else -steps) >= -allowed).all(), p

    @pytest.mark.parametrize("p", [2, 3, 16, 128, 1024, 65536])
    def test_inverse_reaches_1e12(self, p):
        kappa = torch.logspace(-8, 12, 201, dtype=torch.float64)
        rest = one_minus_bessel_ratio(kappa, p)
        again = inverse_bessel_ratio(bessel_ratio(kappa, p), p, one_minus_r=rest)
        torch.testing.assert_close(again, kappa, rtol=1e-14, atol=0)

    @pytest.mark.parametrize("p", [2, 128, 65536])
    def test_inverse_in_float32(self, p):
        kappa = torch.logspace(-6, 10, 201)
        rest = one_minus_bessel_ratio(kappa, p)
        again = inverse_bessel_ratio(bessel_ratio(kappa, p), p, one_minus_r=rest)
        torch.testing.assert_close(again, kappa, rtol=2e-6, atol=0)

    def test_log_iv_limits(self):
        zero = torch.zeros(1, dtype=torch.float64)
        assert log_iv(0, zero).item() == 0
        assert log_iv(0.5, zero).item() == -math.inf
        assert log_iv(63, zero).item() == -math.inf


class TestInputs:
    @every_function
    def test_shapes_and_dtypes(self, function):
        for shape in ((), (0,), (5,), (2, 3, 4)):
            for dtype in (torch.float64, torch.float32):
                result = function(torch.ones(shape, dtype=dtype), 7)
                assert result.shape == shape
                assert result.dtype is dtype
        for dtype in (torch.bfloat16, torch.float16):
            kappa = torch.tensor([0.5, 3.0, 100.0], dtype=dtype)
            assert torch.equal(function(kappa, 128), function(kappa.float(), 128))
        assert torch.equal(function(torch.tensor([3]), 5), function(torch.tensor([3.0]), 5))
        strided = torch.rand(6, 4, dtype=torch.float64).t()[::2]
        assert torch.equal(function(strided, 5), function(strided.contiguous(), 5))

    @every_function
    def test_gradient_keeps_the_dtype_of_its_tensor(self, function):
        kappa = torch.tensor([0.5, 3.0], dtype=torch.bfloat16, requires_grad=True)
        function(kappa, 128).sum().backward()
        assert kappa.grad.dtype is torch.bfloat16

    @every_function
    @pytest.mark.parametrize("p", [1, 0, -3, 2.5, 128.0, "128", None, True])
    def test_bad_dimension(self, function, p):
        with pytest.raises(ValueError, match=r"p must be an int >= 2.*" + str(p)):
            function(torch.ones(2), p)

    def test_numpy_integers_are_dimensions(self):
        kappa = torch.tensor(3.0, dtype=torch.float64)
        assert log_partition(kappa, np.int64(2000)) == log_partition(kappa, 2000)

    @every_function
    @pytest.mark.parametrize("bad", [-0.5, math.nan, -math.inf])
    def test_bad_kappa(self, function, bad):
        with pytest.raises(ValueError, match=f"kappa must be >= 0 and not NaN; got {bad}"):
            function(torch.tensor([1.0, bad]), 8)
        function(torch.tensor([1.0, bad]), 8, validate_args=False)

    @every_function
    @pytest.mark.parametrize("bad", ["3", None, torch.tensor(1j), torch.tensor(True), [1.0]])
    def test_not_a_real_tensor(self, function, bad):
        with pytest.raises(ValueError, match="kappa must be a real tensor or number"):
            function(bad, 8)

    @pytest.mark.parametrize("bad", [-0.1, 1.5, math.nan])
    def test_bad_resultant(self, bad):
        with pytest.raises(ValueError, match=r"r must be in \[0, 1\]"):
            inverse_bessel_ratio(torch.tensor([0.5, bad]), 8)
        with pytest.raises(ValueError, match=r"one_minus_r must be in \[0, 1\]"):
            inverse_bessel_ratio(torch.tensor([0.5, 0.5]), 8, torch.tensor([0.5, bad]))
        with pytest.raises(ValueError, match=r"shapes do not broadcast: r \(2,\)"):
            inverse_bessel_ratio(torch.ones(2), 8, torch.zeros(3))

    @pytest.mark.parametrize("bad", [-1, math.nan, math.inf, torch.tensor(1.0), "1"])
    def test_bad_order(self, bad):
        with pytest.raises(ValueError, match="nu must be a finite Python number >= 0"):
            log_iv(bad, torch.ones(2))
