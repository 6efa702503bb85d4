"""The poly-view losses against their definition, written with loops."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from dsf.losses import CosineLoss, PolyView

B, D, K = 5, 6, 7
POOLINGS = ("arithmetic", "geometric")
every_pooling = pytest.mark.parametrize("pooling", POOLINGS)


def sides(m0=3, m1=2, batch=B, seed=0):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(batch, 1, D, generator=generator, dtype=torch.float64)
    return [
        base + torch.randn(batch, m, D, generator=generator, dtype=torch.float64) for m in (m0, m1)
    ]


def cosine(a, b):
    norms = [math.sqrt(sum(x * x for x in v)) for v in (a, b)]
    return sum(x * y for x, y in zip(a, b)) / (norms[0] * norms[1])


def defined(anchors, fellows, others, pooling, temperature, contrast="infonce"):
    """The mean over images and views; ``fellows(i, a)`` and ``others(i)`` are lists of vectors."""
    total, count = 0.0, 0
    for i, image in enumerate(anchors):
        for a, view in enumerate(image):
            negative = sum(math.exp(cosine(view, other) / temperature) for other in others(i))
            found = []
            for fellow in fellows(i, a):
                positive = math.exp(cosine(view, fellow) / temperature)
                denominator = negative + (positive if contrast == "infonce" else 0)
                found.append(positive / denominator)
            if pooling == "arithmetic":
                total -= math.log(sum(found) / len(found))
            else:
                total -= sum(math.log(x) for x in found) / len(found)
            count += 1
    return total / count


def definition(out0, out1, setting, bank=None, **options):
    first, second = out0.tolist(), out1.tolist()
    if setting == "both":
        images = [a + b for a, b in zip(first, second)]
        return defined(
            images,
            lambda i, a: [view for b, view in enumerate(images[i]) if b != a],
            lambda i: [view for j, image in enumerate(images) if j != i for view in image],
            **options,
        )
    if setting == "cross":
        negatives = lambda i: [v for j, image in enumerate(second) if j != i for v in image]  # noqa: E731
    else:
        negatives = lambda i: [view for image in bank.tolist() for view in image]  # noqa: E731
    return defined(first, lambda i, a: second[i], negatives, **options)


@every_pooling
@pytest.mark.parametrize("contrast", ["infonce", "dcl"])
@pytest.mark.parametrize("setting", ["both", "cross", "queue"])
@pytest.mark.parametrize("block_size", [None, 4])
@pytest.mark.parametrize("views", [(3, 2), (1, 4), (2, 1), (1, 1)])
def test_definition(pooling, contrast, setting, block_size, views):
    out0, out1 = sides(*views)
    options = {"pooling": pooling, "temperature": 0.2, "contrast": contrast}
    where = {
        "both": {},
        "cross": {"in_batch": "cross"},
        "queue": {"memory_bank_size": (K, D), "views": views[1]},
    }[setting]
    loss = PolyView(**options, **where, block_size=block_size).double()
    bank = None
    if loss.queue is not None:
        loss.queue.features.copy_(normalize(loss.queue.features, dim=-1))  # float64 unit vectors
        bank = loss.queue.features.clone()
    expected = definition(out0, out1, setting, bank, **options)
    value, diagnostics = loss.with_diagnostics(out0, out1)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    if setting == "both":
        unit = normalize(torch.cat([out0, out1], dim=1), dim=-1)
        cosines = torch.einsum("iad,jbd->iajb", unit, unit)
        same = torch.stack([cosines[i, :, i] for i in range(B)])
        m = unit.shape[1]
        positive = (same.sum() - B * m) / (B * m * (m - 1))
        negative = (cosines.sum() - same.sum()) / (B * (B - 1) * m * m)
        torch.testing.assert_close(diagnostics["positive"], positive)
        torch.testing.assert_close(diagnostics["negative"], negative)


@every_pooling
@pytest.mark.parametrize("setting", [{}, {"in_batch": "cross"}, {"memory_bank_size": (K, D)}])
def test_two_views_are_the_usual_loss(pooling, setting):
    loss, other = PolyView(pooling, **setting).double(), CosineLoss(**setting).double()
    if loss.queue is not None:
        other.queue.features.copy_(loss.queue.features[:, 0])
    out0, out1 = sides(1, 1)
    torch.testing.assert_close(loss(out0, out1), other(out0, out1), rtol=1e-12, atol=0)


def test_the_arithmetic_mean_is_never_the_larger():
    for seed in range(10):
        out0, out1 = sides(seed=seed)
        arithmetic, geometric = (PolyView(pooling)(out0, out1) for pooling in POOLINGS)
        assert arithmetic < geometric


@every_pooling
@pytest.mark.parametrize("temperature", [1e-4, 1e-2, 100.0])
@pytest.mark.parametrize("block_size", [None, 4])
def test_extreme_temperatures(pooling, temperature, block_size):
    """In float32, logits of 1e4 and more overflow every exponential that is not kept from it."""
    out0, out1 = sides()
    exact = [side.clone().requires_grad_() for side in (out0, out1)]
    single = [side.float().requires_grad_() for side in (out0, out1)]
    loss = PolyView(pooling, temperature, block_size=block_size)
    value, expected = loss(*single), loss(*exact)
    tolerance = 1e-6 * max(1.0, 1 / temperature)  # a cosine's error, divided by the temperature
    assert value.item() == pytest.approx(expected.item(), rel=1e-5, abs=tolerance)
    value.backward()
    expected.backward()
    for ours, theirs in zip(single, exact):
        scale = theirs.grad.abs().max().item()
        assert ours.grad.isfinite().all()
        if temperature >= 1e-2:
            torch.testing.assert_close(
                ours.grad.double(), theirs.grad, rtol=0, atol=1e-3 * scale + 1e-9
            )


@every_pooling
@pytest.mark.parametrize("temperature", [1e-4, 1.0])
def test_extreme_features(pooling, temperature):
    """Views that coincide, oppose each other, or are those of all images."""
    one = torch.eye(D)[:4].unsqueeze(1)
    for out0, out1 in (
        (one.expand(-1, 3, -1), one.expand(-1, 2, -1)),
        (one.expand(-1, 3, -1), -one.expand(-1, 2, -1)),
        (one[:1].expand(4, 3, -1), one[:1].expand(4, 2, -1)),
    ):
        out0 = out0.clone().requires_grad_()
        value = PolyView(pooling, temperature)(out0, out1)
        value.backward()
        assert value.isfinite()
        assert out0.grad.isfinite().all()
    everywhere = PolyView(pooling, temperature)(out0, out1)
    # One positive among 15 negatives like it.
    assert everywhere.item() == pytest.approx(math.log(16), abs=1e-6 + 2e-7 / temperature)


@every_pooling
@pytest.mark.parametrize("block_size", [None, 4])
def test_one_image_has_no_negatives(pooling, block_size):
    out0, out1 = (side.requires_grad_() for side in sides(batch=1))
    value = PolyView(pooling, block_size=block_size)(out0, out1)
    value.backward()
    assert value.item() == 0
    assert not out0.grad.any()


def test_errors():
    with pytest.raises(ValueError, match=r"pooling must be one of .*got 'harmonic'"):
        PolyView("harmonic")
    with pytest.raises(ValueError, match="temperature must be > 0 and finite; got 0"):
        PolyView(temperature=0)
    with pytest.raises(ValueError, match="views must be at least 1; got 0"):
        PolyView(views=0)
    loss = PolyView(memory_bank_size=(K, D), views=3)
    with pytest.raises(ValueError, match=r"holds keys of shape \(3, 6\); got .* \(2, 6\)"):
        loss(*[side.float() for side in sides(3, 2)])
