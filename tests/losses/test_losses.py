"""What every loss must do, for every source of negatives."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from dsf.losses import (
    CosineLoss,
    DSFLoss,
    FeatureAverage,
    LossAverage,
    PolyView,
    decoupled_info_nce,
    info_nce,
)
from dsf.vmf import ViewDistribution

B, D, K = 6, 7, 11
DIVERGENCES = ["jeffreys", "renyi", "bhattacharyya", "geometric-js", "chi-squared", "hellinger"]
LOSSES = {
    "cosine": (CosineLoss, 1, {}),
    "feature-average": (FeatureAverage, 3, {}),
    "feature-average-normalized": (FeatureAverage, 3, {"normalize": True}),
    "loss-average": (LossAverage, 3, {}),
    "poly-view-arithmetic": (PolyView, 3, {"pooling": "arithmetic"}),
    "poly-view-geometric": (PolyView, 3, {"pooling": "geometric"}),
    "poly-view-blocks": (PolyView, 3, {"pooling": "arithmetic", "block_size": 4}),
    **{f"dsf-{mode}": (DSFLoss, 3, {"mode": mode}) for mode in ("paper", "exact", "literal")},
    "dsf-one-view": (DSFLoss, 1, {}),
    "dsf-mle": (DSFLoss, 3, {"mode": "exact", "estimator": "mle"}),
    "dsf-batch-mean": (DSFLoss, 3, {"queue_kappa": "batch-mean"}),
    **{f"dsf-{name}": (DSFLoss, 3, {"mode": "exact", "divergence": name}) for name in DIVERGENCES},
}
SETTINGS = {
    "both": {},
    "cross": {"in_batch": "cross"},
    "queue": {"memory_bank_size": (K, D)},
    "dcl": {"contrast": "dcl"},
    "dcl-queue": {"contrast": "dcl", "memory_bank_size": (K, D)},
}
every_loss = pytest.mark.parametrize("name", LOSSES)
every_setting = pytest.mark.parametrize("setting", SETTINGS)


def make(name, setting, **more):
    kind, views, options = LOSSES[name]
    options = {**options, **SETTINGS[setting], **more}
    if issubclass(kind, LossAverage) and "memory_bank_size" in options:
        options["views"] = views
    torch.manual_seed(0)
    loss = kind(**options).double()
    for seed in (7, 8):  # fill the queue
        loss(*features(views, seed))
    return loss.eval(), views  # evaluation leaves the queue alone


def features(views, seed=0, batch=B):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(batch, 1, D, generator=generator, dtype=torch.float64)
    sides = torch.randn(2, batch, views, D, generator=generator, dtype=torch.float64)
    return base + 0.7 * sides[0], base + 0.7 * sides[1]


@every_loss
@every_setting
class TestEveryLoss:
    def test_order_of_views(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        order = torch.arange(views).flip(0)
        if name == "loss-average" and "queue" in setting:
            shuffled = loss(out0[:, order], out1)  # its bank keeps views apart
        else:
            shuffled = loss(out0[:, order], out1[:, order])
        torch.testing.assert_close(shuffled, loss(out0, out1), rtol=1e-12, atol=0)

    def test_order_of_samples(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        order = torch.randperm(B)
        torch.testing.assert_close(loss(out0[order], out1[order]), loss(out0, out1))
        if not (setting == "cross" or "queue" in setting):
            swapped = loss(out1, out0)
            if name != "loss-average":
                torch.testing.assert_close(swapped, loss(out0, out1))

    def test_scale_of_features(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        scale = 0.1 + torch.rand(B, views, 1, dtype=torch.float64)
        torch.testing.assert_close(loss(scale * out0, 30 * out1), loss(out0, out1))

    def test_one_sample(self, name, setting):
        loss, views = make(name, setting)
        pair = features(views, batch=1)
        if setting == "dcl":
            with pytest.raises(ValueError, match="has no negatives"):
                loss(*pair)
        else:
            assert loss(*pair).isfinite()

    def test_gradients(self, name, setting):
        loss, views = make(name, setting)
        if name == "dsf-batch-mean" and "queue" in setting:
            # The mean concentration carries no gradient: hold it still.
            mean = torch.tensor(5.0, dtype=torch.float64)
            loss.bank = lambda queue, query, key: ViewDistribution(
                queue.mu, mean.expand(K), mean.expand(K)
            )
        arguments = [side.requires_grad_() for side in features(views)]
        assert gradcheck(loss, arguments, fast_mode=True)

    def test_learned_temperature(self, name, setting):
        loss, views = make(name, setting)
        sides = features(views)

        def value(temperature):
            loss.temperature = temperature
            return loss(*sides)

        temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        assert gradcheck(value, temperature)

    def test_lists_and_single_views(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        expected = loss(out0, out1)
        assert torch.equal(loss(list(out0.unbind(1)), list(out1.unbind(1))), expected)
        if views == 1:
            assert torch.equal(loss(out0[:, 0], out1[:, 0]), expected)

    def test_precision(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        assert loss(out0, out1).dtype is torch.float64
        loss.float()
        single = loss(out0.float(), out1.float())
        assert single.dtype is torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(loss(out0.float(), out1.float()), single)
        half = loss(out0.bfloat16(), out1.bfloat16())
        assert half.dtype is torch.float32
        assert half.isfinite()

    def test_precisions_are_promoted(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        value = loss(out0.float(), out1)
        assert torch.equal(value, loss(out0.float().double(), out1))

    def test_on_the_meta_device(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = (side.to("meta").requires_grad_() for side in features(views))
        value, _ = loss.to("meta").with_diagnostics(out0, out1)
        value.backward()
        assert value.device.type == out1.grad.device.type == "meta"

    def test_diagnostics(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        value, diagnostics = loss.with_diagnostics(out0.requires_grad_(), out1)
        assert torch.equal(value, loss(out0, out1))
        margin = diagnostics["positive"] - diagnostics["negative"]
        torch.testing.assert_close(diagnostics["margin"], margin)
        assert not any(scalar.requires_grad or scalar.dim() for scalar in diagnostics.values())
        assert all(scalar.isfinite() for scalar in diagnostics.values())

    def test_better_for_pairs_than_for_strangers(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        assert loss(out0, out1) < loss(out0, out1.roll(1, dims=0))

    def test_bad_shapes(self, name, setting):
        loss, views = make(name, setting)
        out0, out1 = features(views)
        with pytest.raises(ValueError, match="must have the same number of samples"):
            loss(out0, out1[:-1])
        with pytest.raises(ValueError, match="and the same dimension; got"):
            loss(out0, out1[..., :-1])
        for bad in (out0[:0], out0[..., :0], out0[0, 0], out0.long()):
            with pytest.raises(ValueError, match="out0 must hold features of shape"):
                loss(bad, out1)
        with pytest.raises(ValueError, match="out1 must be a list of tensors of one shape"):
            loss(out0, [out1[:, 0], out1[:-1, 0]])


@pytest.mark.parametrize("mode", ["paper", "exact", "literal"])
def test_the_terms_of_other_images(mode):
    """Two terms have the same mean whoever is paired; the third is larger of strangers."""
    loss = DSFLoss(mode=mode)
    out0, out1 = features(3)
    own = loss.with_diagnostics(out0, out1)[1]
    others = loss.with_diagnostics(out0, out1.roll(1, dims=0))[1]
    torch.testing.assert_close(own["negative_kl_cos"], others["kl_cos"])
    assert own["negative_kl_cos"] > own["kl_cos"]
    for name in ("kl_log", "kl_bessel"):
        torch.testing.assert_close(own[name], others[name])


class TestQueue:
    @pytest.mark.parametrize(
        "name", ["cosine", "feature-average", "loss-average", "poly-view-geometric", "dsf-paper"]
    )
    def test_contrast_first_enqueue_after(self, name):
        loss, views = make(name, "queue")
        out0, out1 = features(views)
        state = {key: value.clone() for key, value in loss.state_dict().items()}
        before = loss(out0, out1)
        assert all(torch.equal(value, loss.state_dict()[key]) for key, value in state.items())
        loss.train()
        first = loss(out0.requires_grad_(), out1)
        assert torch.equal(first, before)  # the keys were not among their own negatives
        first.backward()  # and writing them did not disturb the graph
        assert loss(out0, out1) > before  # now they are

    def test_wrong_dimension(self):
        loss, _ = make("dsf-paper", "queue")
        with pytest.raises(ValueError, match=r"holds keys of shape \(7,\); got .* \(8,\)"):
            loss(torch.randn(3, 2, 8), torch.randn(3, 2, 8))

    def test_unfilled_slots_take_the_mean_concentration(self):
        kept, mean = (
            DSFLoss(memory_bank_size=(K, D)),
            DSFLoss(memory_bank_size=(K, D), queue_kappa="batch-mean"),
        )
        mean.load_state_dict(kept.state_dict())
        sides = [side.float() for side in features(3)]
        assert torch.equal(kept(*sides), mean(*sides))
        other = [side.float() for side in features(3, seed=1)]
        assert kept(*other) != mean(*other)


class TestArguments:
    def test_a_parameter_as_temperature(self):
        loss = CosineLoss(torch.nn.Parameter(torch.tensor(0.2)))
        loss(torch.randn(4, 8), torch.randn(4, 8)).backward()
        (temperature,) = loss.parameters()
        assert temperature.grad.isfinite()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"temperature": 0}, "temperature must be > 0 and finite; got 0"),
            ({"temperature": math.inf}, "temperature must be > 0 and finite; got inf"),
            ({"memory_bank_size": (4.0, 5)}, r"must be 0 or \(K, D\), ints.*got \(4.0, 5\)"),
            ({"memory_bank_size": (4, 0)}, r"must be 0 or \(K, D\), ints.*got \(4, 0\)"),
            ({"block_size": 2.5}, "block_size must be 'auto', None or an int .* got 2.5"),
            ({"mode": "exact", "divergence": "renyi", "alpha": 0}, "alpha must be .* > 0; got 0"),
            ({"memory_bank_size": 4096}, r"must be 0 or \(K, D\), ints of at least 1; got 4096"),
            ({"memory_bank_size": (3, 4, 5)}, r"must be 0 or \(K, D\)"),
            ({"contrast": "triplet"}, "contrast must be one of .*got 'triplet'"),
            ({"in_batch": "all"}, "in_batch must be one of .*got 'all'"),
            ({"mode": "fast"}, "mode must be one of .*got 'fast'"),
            ({"divergence": "js"}, "divergence must be one of .*got 'js'"),
            ({"divergence": "jeffreys"}, "needs mode='exact'; got mode='paper'"),
            ({"shrink": 1.5}, r"shrink must be in \(0, 1\]; got 1.5"),
            ({"estimator": "sra"}, "estimator must be one of .*got 'sra'"),
            ({"block_size": 0}, "block_size must be 'auto', None or an int of at least 1; got 0"),
            (
                {"block_size": 8, "divergence": "jeffreys", "mode": "exact"},
                "block_size needs .*='kl'; got divergence='jeffreys'",
            ),
            (
                {"block_size": np.int64(8), "divergence": "jeffreys", "mode": "exact"},
                "block_size needs .*='kl'; got divergence='jeffreys'",
            ),
            ({"queue_kappa": "old"}, "queue_kappa must be one of .*got 'old'"),
        ],
    )
    def test_bad(self, options, message):
        with pytest.raises(ValueError, match=message):
            DSFLoss(**options)

    def test_cosine_takes_one_view(self):
        with pytest.raises(ValueError, match="one view a side; got m = 2"):
            CosineLoss()(torch.randn(3, 2, 4), torch.randn(3, 2, 4))

    def test_one_view_needs_shrinking(self):
        with pytest.raises(ValueError, match=r"m = 1.* shrink = 1"):
            DSFLoss(shrink=1)(torch.randn(3, 4), torch.randn(3, 4))


class TestContrast:
    def test_by_hand(self):
        logits = torch.tensor([[2.0, 1.0, 0.5], [0.3, -1.0, 0.2]], dtype=torch.float64)
        positives = torch.tensor([0, 2])
        e = logits.exp()
        expected = [-math.log(e[0, 0] / e[0].sum()), -math.log(e[1, 2] / e[1].sum())]
        assert info_nce(logits, positives).item() == pytest.approx(sum(expected) / 2)
        expected = [-math.log(e[0, 0] / e[0, 1:].sum()), -math.log(e[1, 2] / e[1, :2].sum())]
        assert decoupled_info_nce(logits, positives).item() == pytest.approx(sum(expected) / 2)

    @pytest.mark.parametrize("contrast", [info_nce, decoupled_info_nce])
    def test_leading_dimensions_are_averaged(self, contrast):
        logits, positives = torch.randn(2, 3, 4, 5), torch.tensor([1, 0, 4, 2])
        each = [contrast(logits[i, j], positives) for i in range(2) for j in range(3)]
        torch.testing.assert_close(contrast(logits, positives), torch.stack(each).mean())

    @pytest.mark.parametrize("contrast", [info_nce, decoupled_info_nce])
    def test_bad_shapes(self, contrast):
        with pytest.raises(ValueError, match="logits must have shape"):
            contrast(torch.randn(4, 5), torch.tensor([0, 1]))
        with pytest.raises(ValueError, match="logits must have shape"):
            contrast(torch.randn(4, 0), torch.zeros(4, dtype=torch.int64))
