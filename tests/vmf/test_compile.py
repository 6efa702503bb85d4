"""The functions under torch.compile and FakeTensorMode: one graph, and nothing looks at data."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dsf.vmf import (
    bessel_ratio,
    bessel_ratio_derivative,
    fit_views,
    inverse_bessel_ratio,
    kappa_minus_log_partition,
    kl_divergence,
    log_iv,
    log_normalizer,
    log_partition,
    one_minus_bessel_ratio,
)

FUNCTIONS = {
    "log_partition": log_partition,
    "kappa_minus_log_partition": kappa_minus_log_partition,
    "log_normalizer": log_normalizer,
    "bessel_ratio": bessel_ratio,
    "one_minus_bessel_ratio": one_minus_bessel_ratio,
    "bessel_ratio_derivative": bessel_ratio_derivative,
    "inverse_bessel_ratio": lambda x, p: inverse_bessel_ratio(x / (1 + x), p),
    "log_iv": lambda x, p: log_iv(p / 2 - 1, x),
    "fit_views-banerjee": lambda x, p: fit_views(x.reshape(-1, 4, p)).kappa,
    "fit_views-mle": lambda x, p: fit_views(x.reshape(-1, 4, p), estimator="mle").kappa,
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def inputs(p, dtype, device="cpu"):
    x = torch.rand(2 * 4 * p, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return (40 * x).to(device).requires_grad_()


def value_and_gradient(function, x, p):
    value = function(x, p)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), gradient


def check(function, p, dtype, device="cpu"):
    compiled = torch.compile(function, fullgraph=True)
    x = inputs(p, dtype, device)
    tolerance = 1e-12 if dtype is torch.float64 else 1e-5
    for ours, eager in zip(value_and_gradient(compiled, x, p), value_and_gradient(function, x, p)):
        assert_close(ours, eager, tolerance)


def assert_close(ours, expected, tolerance):
    """Sums are taken in another order, so small entries are held to the scale of the large."""
    scale = expected.abs().max().item()
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.usefixtures("compiler")
class TestCompile:
    @every_function
    def test_forward_and_backward_in_one_graph(self, function):
        check(function, 128, torch.float32)

    @pytest.mark.slow
    @every_function
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("p", [2, 3, 1025])
    def test_other_dimensions(self, function, p, dtype):
        check(function, p, dtype)

    def test_dimension_is_specialised_each_time(self):
        compiled = torch.compile(lambda k, p: log_partition(k, p), fullgraph=True)
        kappa = torch.linspace(0, 50, 33, dtype=torch.float64)
        for p in (128, 256, 12):  # the second call makes plain integers symbolic
            torch.testing.assert_close(compiled(kappa, p), log_partition(kappa, p))

    @pytest.mark.parametrize(
        "kappa",
        [
            pytest.param(torch.tensor(3.0), id="scalar"),
            pytest.param(torch.arange(24.0).reshape(6, 4).t(), id="transposed"),
            pytest.param(torch.arange(48.0).reshape(8, 6)[::2, 1::2], id="strided"),
            pytest.param(torch.arange(4.0).unsqueeze(1).expand(4, 5), id="expanded"),
        ],
    )
    def test_any_layout(self, kappa):
        compiled = torch.compile(lambda k: bessel_ratio_derivative(k * 2, 3), fullgraph=True)
        torch.testing.assert_close(compiled(kappa), bessel_ratio_derivative(kappa * 2, 3))

    @pytest.mark.parametrize("function", [log_partition, bessel_ratio])
    def test_along_any_dimension(self, function):
        kappa = torch.linspace(0, 40, 35).view(5, 7)
        mapped = torch.vmap(lambda k: function(k, 3), in_dims=1, out_dims=1)
        torch.testing.assert_close(torch.compile(mapped)(kappa), function(kappa, 3))

    def test_pairwise_kl(self):
        def matrix(views):
            i, j = fit_views(views[:8]), fit_views(views[8:])
            return kl_divergence(i, j, pairwise=True)

        views = torch.randn(16, 4, 32, requires_grad=True)
        compiled = torch.compile(matrix, fullgraph=True)
        expected = matrix(views)
        torch.testing.assert_close(compiled(views), expected)
        (ours,) = torch.autograd.grad(compiled(views).sum(), views)
        torch.testing.assert_close(ours, torch.autograd.grad(expected.sum(), views)[0])


class TestFakeTensors:
    """FakeTensorMode raises at any operation whose result depends on data."""

    @every_function
    @pytest.mark.parametrize("p", [3, 128])
    def test_forward_and_backward(self, function, p):
        with FakeTensorMode():
            x = torch.ones(2 * 4 * p, requires_grad=True)
            value = function(x, p)
            (gradient,) = torch.autograd.grad(value.sum(), x)
            assert gradient.shape == x.shape

    def test_it_would_notice(self):
        with FakeTensorMode(), pytest.raises(Exception, match="aten._local_scalar_dense"):
            log_partition(torch.ones(3), 8).sum().item()


@pytest.mark.gpu
class TestCuda:
    @every_function
    @pytest.mark.parametrize("p", [3, 128])
    def test_compiled(self, function, p):
        torch._dynamo.reset()
        check(function, p, torch.float32, "cuda")

    @every_function
    @pytest.mark.parametrize("p", [2, 3, 128, 1024])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_same_as_cpu_and_no_synchronisation(self, function, p, dtype):
        x = inputs(p, dtype, "cuda")
        expected = value_and_gradient(function, inputs(p, dtype), p)
        function(x, p)  # context and caches
        torch.cuda.set_sync_debug_mode("error")
        try:
            ours = value_and_gradient(function, x, p)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        tolerance = 1e-12 if dtype is torch.float64 else 1e-5
        for gpu, cpu in zip(ours, expected):
            assert_close(gpu.cpu(), cpu, tolerance)

    def test_validate_args_checks_values_on_the_device(self):
        bad = torch.tensor([1.0, -2.0], device="cuda")
        log_partition(bad, 8)
        with pytest.raises(ValueError, match=r"kappa must be >= 0 and not NaN; got -2\.0"):
            log_partition(bad, 8, validate_args=True)
