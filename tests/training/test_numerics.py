"""What a training changes of torch's settings, and puts back."""

import pytest
import torch

from dsf.training.numerics import numerics


def settings():
    backends = torch.backends
    return (
        torch.are_deterministic_algorithms_enabled(),
        backends.cudnn.deterministic,
        backends.cudnn.benchmark,
        backends.cudnn.conv.fp32_precision,
        backends.cuda.matmul.fp32_precision,
    )


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp64"])
def test_puts_everything_back(precision):
    before = settings()
    with numerics(precision, True, True):
        assert settings()[:3] == (True, True, True)
    assert settings() == before


def test_puts_everything_back_after_an_error():
    before = settings()
    with pytest.raises(KeyboardInterrupt), numerics("bf16", True, True):
        raise KeyboardInterrupt
    assert settings() == before


@pytest.fixture(params=["tf32", "ieee"])
def chosen(request):
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = request.param
    yield request.param
    products.fp32_precision = before


@pytest.mark.parametrize(
    ("precision", "products"), [("bf16", "tf32"), ("fp32", "ieee"), ("fp64", "ieee")]
)
def test_rounds_factors_beside_bfloat16_alone(chosen, precision, products):
    with numerics(precision, False, False):
        assert torch.backends.cuda.matmul.fp32_precision == products
        if precision != "bf16":
            assert torch.backends.cudnn.conv.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == chosen
