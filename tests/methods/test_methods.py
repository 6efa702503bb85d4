import math
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from dsf.losses import CosineLoss, DSFLoss, FeatureAverage, LossAverage, PolyView
from dsf.methods import MethodOutput, MoCo, MoCoV3, SimCLR
from dsf.models import create_encoder, split_batch_norm

B, D, K = 8, 6, 24
LOSSES = {
    "cosine": CosineLoss,
    "feature": FeatureAverage,
    "loss": LossAverage,
    "poly": PolyView,
    "dsf": DSFLoss,
}
METHODS = ["simclr", "moco", "moco-symmetric", "mocov3"]
every_method = pytest.mark.parametrize("name", METHODS)


class Encoder(nn.Sequential):
    """Without BatchNorm, so that a sample's features depend on nothing else."""

    num_features = 10

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 10, 3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Tanh()
        )


def make(name, loss="dsf", m=2, encoder=None, **options):
    torch.manual_seed(0)
    loss_options = {"views": m} if loss in ("loss", "poly") else {}
    if name == "simclr":
        kind = SimCLR
    elif name == "mocov3":
        kind, options = MoCoV3, {"predictor": "mlp", "hidden": 12, **options}
        loss_options["in_batch"] = "cross"
    else:
        kind = MoCo
        loss_options["memory_bank_size"] = (K, D)
        options = {"symmetric": name == "moco-symmetric", **options}
    return kind(
        encoder or Encoder(),
        LOSSES[loss](**loss_options),
        **{"projector": "mlp", "dimension": D, **options},
    )


def make_views(m=2, seed=0, batch=B):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(batch, 1, 3, 8, 8, generator=generator)
    return images + 0.3 * torch.randn(batch, 2 * m, 3, 8, 8, generator=generator)


def features(function, views):
    return torch.stack([function(view) for view in views.unbind(1)], dim=1)


@every_method
class TestEveryMethod:
    @pytest.mark.parametrize(
        ("loss", "m"), [("cosine", 1), *product(("feature", "loss", "poly", "dsf"), (1, 3))]
    )
    def test_loss_and_gradients(self, name, loss, m):
        method = make(name, loss, m)
        output = method(make_views(m))
        assert isinstance(output, MethodOutput)
        assert output.loss.isfinite()
        assert "margin" in output.diagnostics
        for scalar in output.diagnostics.values():
            assert scalar.dim() == 0
            assert not scalar.requires_grad
        output.loss.backward()
        for label, parameter in method.named_parameters():
            if label.startswith("key_"):
                assert parameter.grad is None
                assert not parameter.requires_grad
            else:
                assert parameter.grad.any(), label

    def test_list_of_views(self, name):
        views = make_views()
        assert torch.equal(make(name)(list(views.unbind(1))).loss, make(name)(views).loss)

    def test_without_diagnostics(self, name):
        output = make(name)(make_views(), diagnose=False)
        assert output.diagnostics == {}
        assert torch.equal(output.loss, make(name)(make_views()).loss)

    def test_heads_and_loss_keep_their_precision(self, name):
        method = make(name)
        encoded, projected = set(), set()
        method.encoder.register_forward_hook(lambda *args: encoded.add(args[2].dtype))
        method.projector.register_forward_hook(lambda *args: projected.add(args[2].dtype))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = method(make_views()).loss
        assert encoded == {torch.bfloat16}
        assert projected == {torch.float32}
        assert loss.dtype is torch.float32
        assert method.double()(make_views().double()).loss.dtype is torch.float64

    def test_learns(self, name):
        torch.manual_seed(0)
        method = make(name, encoder=create_encoder("resnet-small", width=8), projector="mlp-bn")
        split_batch_norm(method, 2)
        trained = [parameter for parameter in method.parameters() if parameter.requires_grad]
        optimiser = torch.optim.SGD(trained, lr=0.05, momentum=0.9)
        margins = []
        for step in range(16):
            output = method(make_views(seed=step % 4, batch=16))
            optimiser.zero_grad()
            output.loss.backward()
            optimiser.step()
            method.after_step()
            margins.append(output.diagnostics["margin"].item())
        assert sum(margins[-4:]) > sum(margins[:4])

    def test_resumes_from_its_state(self, name):
        method = make(name, momentum_steps=5) if name != "simclr" else make(name)
        for seed in range(2):
            method(make_views(seed=seed))
            with torch.no_grad():
                for parameter in method.encoder.parameters():
                    parameter.add_(0.1)
            method.after_step()
        torch.manual_seed(5)
        fresh = make(name, momentum_steps=5) if name != "simclr" else make(name)
        fresh.load_state_dict({k: v.clone() for k, v in method.state_dict().items()})
        for each in (method, fresh):
            each.after_step()
        views = make_views(seed=9)
        assert torch.equal(fresh(views).loss, method(views).loss)
        for label, tensor in method.state_dict().items():
            assert torch.equal(fresh.state_dict()[label], tensor), label

    def test_evaluation_changes_nothing(self, name):
        method = make(name).eval()
        before = {label: tensor.clone() for label, tensor in method.state_dict().items()}
        first = method(make_views()).loss
        assert torch.equal(method(make_views()).loss, first)
        assert all(torch.equal(before[k], v) for k, v in method.state_dict().items())

    @pytest.mark.parametrize(
        ("views", "message"),
        [
            (torch.randn(4, 3, 3, 8, 8), "must be even, M = 2 m; got 3"),
            (torch.randn(4, 3, 8, 8), r"must be \(B, M, 3, H, W\)"),
            (torch.randn(0, 2, 3, 8, 8), "none empty"),
            ([], "must be tensors of one shape; got none"),
            ([torch.randn(4, 3, 8, 8), torch.randn(4, 3, 9, 9)], "must be tensors of one shape"),
        ],
    )
    def test_bad_views(self, name, views, message):
        with pytest.raises(ValueError, match=message):
            make(name)(views)

    def test_bad_encoder(self, name):
        encoder = nn.Conv2d(3, 6, 3)
        encoder.num_features = 6
        with pytest.raises(ValueError, match=r"encoder must map images.*got \(\d+, 6, 6, 6\)"):
            make(name, encoder=encoder)(make_views())


def test_simclr_contrasts_the_halves():
    method = make("simclr")
    views = make_views()
    out = features(method.project, views)
    torch.testing.assert_close(method(views).loss, DSFLoss()(out[:, :2], out[:, 2:]))


class TestMoCo:
    def test_queries_and_keys(self):
        method = make("moco", shuffle="none")
        views = make_views()
        out0 = features(method.project, views[:, :2])
        keys = features(method.keys, views[:, 2:])
        other = DSFLoss(memory_bank_size=(K, D))
        other.load_state_dict(method.loss.state_dict())
        torch.testing.assert_close(method(views).loss, other(out0, keys))
        torch.testing.assert_close(method.loss.queue.mu, other.queue.mu)
        assert method.loss.queue.filled == B

    def test_both_directions_see_the_queue_as_it_was(self):
        method = make("moco-symmetric", shuffle="none", loss="cosine", m=1)
        views = make_views(1)
        state = {name: tensor.clone() for name, tensor in method.loss.state_dict().items()}
        out0, out1 = (method.project(view).unsqueeze(1) for view in views.unbind(1))
        key0, key1 = (method.keys(view).unsqueeze(1) for view in views.unbind(1))
        output = method(views)
        other = CosineLoss(memory_bank_size=(K, D)).eval()
        other.load_state_dict(state)
        one, one_diagnostics = other.with_diagnostics(out0, key1)
        two, two_diagnostics = other.with_diagnostics(out1, key0)
        torch.testing.assert_close(output.loss, one + two)
        margin = (one_diagnostics["margin"] + two_diagnostics["margin"]) / 2
        torch.testing.assert_close(output.diagnostics["margin"], margin)
        entered = normalize(torch.cat([key1, key0])[:, 0], dim=-1)
        torch.testing.assert_close(method.loss.queue.features[: 2 * B], entered)
        assert torch.equal(method.loss.queue.features[2 * B :], state["queue.features"][2 * B :])

    @pytest.mark.parametrize("shuffle", ["global", "local"])
    def test_order_of_keys_matters_to_batch_norm_only(self, shuffle):
        views = make_views()
        shuffled, plain = make("moco", shuffle=shuffle), make("moco", shuffle="none")
        torch.testing.assert_close(shuffled(views).loss, plain(views).loss)
        torch.testing.assert_close(shuffled.loss.queue.mu, plain.loss.queue.mu)
        shuffled, plain = (
            split_batch_norm(make("moco", shuffle=way, projector="mlp-bn"), 4)
            for way in (shuffle, "none")
        )
        difference = shuffled(views).loss - plain(views).loss
        assert difference.abs() > 1e-4

    def test_order_of_keys_changes_with_seed_step_and_side(self):
        def seen(step=0, **options):
            method = make("moco-symmetric", **options)
            orders = []
            method.key_encoder.register_forward_hook(lambda *args: orders.append(args[1][0][:, 0]))
            for _ in range(step):
                method.after_step()
            views = make_views()
            method(torch.cat([views[:, :2], views[:, :2]], dim=1))
            return orders

        first = seen()
        assert not torch.equal(first[0], first[1])
        for other in (seen(step=1), seen(seed=1)):
            assert not torch.equal(first[0], other[0])
        assert all(torch.equal(a, b) for a, b in zip(first, seen()))


class TestMoCoV3:
    def test_both_directions_through_both_encoders(self):
        method = make("mocov3")
        views = make_views()
        out = features(method.predict, views)
        keys = features(method.keys, views)
        loss = DSFLoss(in_batch="cross")
        expected = loss(out[:, :2], keys[:, 2:]) + loss(out[:, 2:], keys[:, :2])
        torch.testing.assert_close(method(views).loss, expected)
        swapped = torch.cat([views[:, 2:], views[:, :2]], dim=1)
        torch.testing.assert_close(method(swapped).loss, expected)

    @pytest.mark.parametrize(("norm", "sides"), [(nn.GroupNorm(2, 10), 1), (nn.BatchNorm2d(10), 2)])
    def test_batch_norm_sees_each_side_apart(self, norm, sides):
        encoder = Encoder()
        encoder[1] = norm
        method = make("mocov3", encoder=encoder, projector="mlp-bn", predictor="mlp-bn")
        seen = []
        for part in (method.encoder, method.key_encoder, method.projector, method.key_projector):
            part.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
        views = make_views()
        loss = method(views).loss
        encoded = [4 * B // sides] * sides
        assert seen == [*encoded, *[2 * B] * 2] * 2
        # As by definition: each side a batch of its own, to both encoders and to all heads.
        out0, out1 = (method.predict(x.flatten(0, 1)).view(B, 2, D) for x in views.chunk(2, 1))
        key0, key1 = (method.keys(x.flatten(0, 1)).view(B, 2, D) for x in views.chunk(2, 1))
        contrast = DSFLoss(in_batch="cross")
        torch.testing.assert_close(loss, contrast(out0, key1) + contrast(out1, key0))

    def test_the_projector_decides_the_dimension(self):
        loss = DSFLoss(in_batch="cross")
        method = MoCoV3(Encoder(), loss, nn.Linear(10, 5), "mlp", dimension=D, hidden=12)
        with pytest.raises(ValueError, match="what the projector gives, 5,.*got 6"):
            method(make_views(1))

    def test_scale_of_a_learned_temperature(self):
        loss = CosineLoss(nn.Parameter(torch.tensor(0.25)), in_batch="cross")
        method = MoCoV3(Encoder(), loss, "mlp", "mlp", dimension=D, hidden=12)
        assert method.scale == 0.5
        for _ in range(2):
            method(make_views(1)).loss.backward()
        assert loss.temperature.grad.isfinite()

    def test_scale(self):
        views = make_views()
        for loss, expected in (("feature", 0.2), ("loss", 0.2), ("dsf", 1.0)):
            plain = make("mocov3", loss, scale=1.0)(views).loss
            torch.testing.assert_close(make("mocov3", loss)(views).loss, expected * plain)

    def test_heads(self):
        method = MoCoV3(Encoder(), DSFLoss(in_batch="cross"))
        shapes = [
            [tuple(p.shape) for p in h.parameters()] for h in (method.projector, method.predictor)
        ]
        assert shapes[0][0] == (4096, 10)
        assert shapes[0][-1] == (256, 4096)
        assert shapes[1][0] == (4096, 256)
        assert shapes[1][-1] == (256, 4096)


class TestMomentum:
    @pytest.mark.parametrize("name", ["moco", "mocov3"])
    def test_key_side_follows(self, name):
        method = make(name, momentum=0.9)
        pairs = [
            *zip(method.encoder.parameters(), method.key_encoder.parameters()),
            *zip(method.projector.parameters(), method.key_projector.parameters()),
        ]
        assert all(torch.equal(query, key) for query, key in pairs)
        method.after_step()
        assert all(torch.equal(query, key) for query, key in pairs)  # not a bit
        before = [key.clone() for _, key in pairs]
        with torch.no_grad():
            for query, _ in pairs:
                query.add_(torch.randn_like(query))
        method.after_step()
        for (query, key), old in zip(pairs, before):
            torch.testing.assert_close(key, 0.9 * old + 0.1 * query)

    def test_schedule(self):
        method = make("mocov3", momentum=0.9, momentum_steps=10)
        key, query = method.key_encoder[0].bias, method.encoder[0].bias
        for step in range(1, 13):
            with torch.no_grad():
                key.zero_()
                query.fill_(1.0)
            method.after_step()
            rate = 0.1 * (1 + math.cos(math.pi * min(step / 10, 1))) / 2
            torch.testing.assert_close(key, torch.full_like(key, rate), atol=1e-8, rtol=1e-5)

    def test_statistics_of_batch_norm_are_its_own(self):
        method = make("moco", encoder=create_encoder("resnet-small", width=8))
        method(make_views())
        method.after_step()
        assert method.key_encoder.bn1.num_batches_tracked == 1
        assert not torch.equal(method.key_encoder.bn1.running_mean, method.encoder.bn1.running_mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SimCLR(Encoder(), DSFLoss(in_batch="cross")), "SimCLR takes a loss.*'both'"),
        (lambda: SimCLR(Encoder(), DSFLoss(memory_bank_size=(4, 4))), "without a memory bank"),
        (lambda: MoCo(Encoder(), DSFLoss()), "MoCo takes a loss with a memory bank"),
        (lambda: make("moco", dimension=D + 1), f"dimension must be .* which is {D}; got {D + 1}"),
        (lambda: make("moco", "loss", dimension=1), f"dimension must be .* which is {D}; got 1"),
        (lambda: MoCoV3(Encoder(), DSFLoss()), "MoCoV3 takes a loss.*'cross'"),
        (lambda: make("moco", shuffle="all"), "shuffle must be one of.*got 'all'"),
        (lambda: make("moco", momentum=1.5), r"momentum must be in \[0, 1\]; got 1.5"),
        (lambda: make("mocov3", momentum_steps=0), "momentum_steps must be at least 1; got 0"),
        (lambda: make("simclr", projector="mpl"), "head must be one of"),
        (lambda: make("simclr", encoder=nn.Flatten()), "Flatten does not say.*num_features"),
        (lambda: SimCLR("resnet18", DSFLoss()), r"such as create_encoder\('resnet18'\); got 'resn"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@every_method
def test_a_step_on_cuda_does_not_synchronise(name):
    method = make(name, encoder=create_encoder("resnet-small"), projector="mlp-bn").cuda()
    split_batch_norm(method, 4).to(memory_format=torch.channels_last)
    views = make_views().cuda()
    trained = [parameter for parameter in method.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=0.05, momentum=0.9, fused=True)
    for mode in ("default", "error"):
        torch.cuda.set_sync_debug_mode(mode)
        try:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = method(views).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            method.after_step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()


@pytest.mark.gpu
@every_method
def test_same_on_cuda(name):
    views = make_views().double()
    cpu, gpu = make(name).double(), make(name).double().cuda()
    for _ in range(2):
        for method, images in ((cpu, views), (gpu, views.cuda())):
            loss = method(images).loss
            gradient = torch.autograd.grad(loss, method.encoder[0].weight)[0]
            method.after_step()
            if method is cpu:
                expected = loss, gradient
        torch.testing.assert_close((loss.cpu(), gradient.cpu()), expected)
