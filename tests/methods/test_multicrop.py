"""Methods with local views: queries of another resolution, more of them than keys."""

import pytest
import torch
from test_methods import LOSSES, METHODS, B, D, Encoder, K, features, make, make_views
from torch import nn

from dsf.losses import DSFLoss
from dsf.methods import MoCo
from dsf.models import create_encoder, split_batch_norm

L = 3
every_method = pytest.mark.parametrize("name", METHODS)


def make_local(count=L, size=5, batch=B, seed=0):
    """Of the same images, smaller."""
    whole = make_views(seed=seed, batch=batch)[:, :1, :, :size, :size]
    generator = torch.Generator().manual_seed(seed + 100)
    return whole + 0.3 * torch.randn(batch, count, 3, size, size, generator=generator)


def seen_shapes(module):
    shapes = []
    module.register_forward_hook(lambda *args: shapes.append(tuple(args[1][0].shape)))
    return shapes


@every_method
class TestEveryMethod:
    @pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "cosine"])
    def test_loss_and_gradients(self, name, loss):
        method = make(name, loss)
        output = method(make_views(), local=make_local())
        assert output.loss != make(name, loss)(make_views()).loss
        assert "margin" in output.diagnostics
        output.loss.backward()
        for label, parameter in method.named_parameters():
            if not label.startswith("key_"):
                assert parameter.grad.any(), label

    def test_each_resolution_is_encoded_once(self, name):
        method = make(name)
        queries = seen_shapes(method.encoder)
        keys = seen_shapes(method.key_encoder) if name != "simclr" else []
        method(make_views(), local=make_local())
        small = (B * L, 3, 5, 5)
        assert queries.count(small) == 1
        assert small not in keys
        assert set(queries) - {small} == ({(4 * B, 3, 8, 8)} if name == "simclr" else {*keys})

    def test_list_of_local_views(self, name):
        local = make_local()
        ours = make(name)(make_views(), local=list(local.unbind(1))).loss
        assert torch.equal(ours, make(name)(make_views(), local=local).loss)

    def test_a_batch_of_its_own_to_batch_norm(self, name):
        """16 x 3 local views in 8 groups; other local views change nothing for the rest."""
        method = split_batch_norm(
            make(name, encoder=create_encoder("resnet-small", width=8), projector="mlp-bn"), 8
        )
        inputs = []
        method.projector.register_forward_hook(lambda *args: inputs.append(args[2].detach()))
        method(make_views(batch=16), local=make_local(batch=16))
        with_three = [x for x in inputs if len(x) != 16 * L]
        inputs.clear()
        method(make_views(batch=16), local=make_local(count=5, batch=16))
        with_five = [x for x in inputs if len(x) != 16 * 5]
        assert len(with_three) == len(with_five) > 0
        assert all(map(torch.equal, with_three, with_five))

    def test_groups_must_divide_the_local_views(self, name):
        method = split_batch_norm(make(name, projector="mlp-bn"), 16)
        with pytest.raises(ValueError, match="16 splits do not divide a batch of 24 samples"):
            method(make_views(), local=make_local())

    @pytest.mark.parametrize(
        ("local", "message"),
        [
            (make_local(batch=B - 1), "views and local must be of the same images; got 8 and 7"),
            (torch.randn(B, 3, 5, 5), r"local must be \(B, M, 3, H, W\)"),
            (torch.randn(B, 0, 3, 5, 5), "none empty"),
            ([torch.randn(B, 3, 5, 5), torch.randn(B, 3, 6, 6)], "local must be tensors of one"),
        ],
    )
    def test_bad_local_views(self, name, local, message):
        with pytest.raises(ValueError, match=message):
            make(name)(make_views(), local=local)

    def test_cosine_loss_says_what_it_takes(self, name):
        with pytest.raises(ValueError, match="CosineLoss takes one view a side; got m = 4"):
            make(name, "cosine", 1)(make_views(1), local=make_local())


def sides(function, views, local):
    small = features(function, local)
    whole = features(function, views)
    return [torch.cat([half, small], dim=1) for half in (whole[:, :2], whole[:, 2:])]


def test_simclr_adds_them_to_the_first_half():
    method, views, local = make("simclr"), make_views(), make_local()
    out0, _ = sides(method.project, views, local)
    out1 = features(method.project, views[:, 2:])
    torch.testing.assert_close(method(views, local=local).loss, DSFLoss()(out0, out1))


def test_moco_has_them_as_queries():
    method, views, local = make("moco"), make_views(), make_local()
    out0, _ = sides(method.project, views, local)
    keys = features(method.keys, views[:, 2:])
    other = DSFLoss(memory_bank_size=(K, D))
    other.load_state_dict(method.loss.state_dict())
    torch.testing.assert_close(method(views, local=local).loss, other(out0, keys))
    torch.testing.assert_close(method.loss.queue.mu, other.queue.mu)
    assert method.loss.queue.filled == B  # of keys alone


def test_symmetric_moco_has_them_as_queries_in_both_directions():
    method, views, local = make("moco-symmetric"), make_views(), make_local()
    out0, out1 = sides(method.project, views, local)
    keys = features(method.keys, views)
    other = DSFLoss(memory_bank_size=(K, D)).eval()
    other.load_state_dict(method.loss.state_dict())
    expected = other(out0, keys[:, 2:]) + other(out1, keys[:, :2])
    torch.testing.assert_close(method(views, local=local).loss, expected)


def test_mocov3_predicts_from_them_in_both_directions():
    method, views, local = make("mocov3"), make_views(), make_local()
    out0, out1 = sides(method.predict, views, local)
    keys = features(method.keys, views)
    loss = DSFLoss(in_batch="cross")
    expected = loss(out0, keys[:, 2:]) + loss(out1, keys[:, :2])
    torch.testing.assert_close(method(views, local=local).loss, expected)


def test_queries_and_keys_shuffle_as_before():
    """Local views leave the order of the keys alone."""
    method = MoCo(Encoder(), DSFLoss(memory_bank_size=(K, D)), "mlp", D)
    seen = []
    method.key_encoder.register_forward_hook(lambda *args: seen.append(args[1][0]))
    method(make_views())
    method(make_views(), local=make_local())
    assert torch.equal(*seen)


def test_fixed_positions_serve_both_resolutions():
    """A transformer interpolates its positions to those of the smaller grid."""
    options = {"image_size": 32, "depth": 1, "embed_dim": 48, "num_heads": 2}
    encoder = create_encoder("mocov3-vit-small", **options, dynamic_img_size=True)
    fixed = create_encoder("mocov3-vit-small", **options)
    fixed.load_state_dict(encoder.state_dict())
    large, small = torch.randn(2, 3, 32, 32), torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(encoder(large), fixed(large))
    assert encoder(small).shape == (2, 48)
    with pytest.raises(AssertionError):
        fixed(small)
    method = make("mocov3", encoder=encoder)
    views = torch.randn(4, 2, 3, 32, 32)
    method(views, local=torch.randn(4, 2, 3, 16, 16)).loss.backward()
    assert isinstance(encoder.pos_embed, nn.Parameter)
    assert encoder.pos_embed.grad is None
