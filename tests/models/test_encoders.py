import math

import pytest
import torch
import torchvision
from torch import nn

from dsf.models import create_encoder, feature_dimension
from dsf.models.encoders import sine_cosine_positions


@pytest.mark.parametrize(
    ("name", "options", "width"),
    [
        ("resnet18", {"stem": "cifar"}, 512),
        ("resnet34", {"stem": "cifar"}, 512),
        ("resnet50", {"stem": "cifar"}, 2048),
        ("resnet18", {}, 512),
        ("resnet-small", {}, 128),
        ("resnet-small", {"width": 8, "in_chans": 1}, 64),
        ("mocov3-vit-small", {"image_size": 32}, 384),
        ("timm/vit_tiny_patch16_224", {"img_size": 32}, 192),
        ("timm/convnext_atto", {}, 320),
        ("timm/mobilenetv3_small_100", {}, 1024),  # a layer after its last map, of 576 channels
        ("torchvision/resnet18", {}, 512),
        ("torchvision/mobilenet_v3_small", {}, 1024),
    ],
)
def test_features(name, options, width):
    encoder = create_encoder(name, **options)
    assert feature_dimension(encoder) == width
    channels = options.get("in_chans", 3)
    features = encoder(torch.randn(2, channels, 32, 32))
    assert features.shape == (2, width)
    assert features.isfinite().all()
    features.square().sum().backward()
    for label, parameter in encoder.named_parameters():
        assert parameter.grad is not None or not parameter.requires_grad, label


def test_cifar_stem():
    encoder = create_encoder("resnet18", stem="cifar")
    shapes = {}
    for name in ("conv1", "maxpool", "layer1", "layer4"):
        layer = encoder.get_submodule(name)
        layer.register_forward_hook(
            lambda *args, name=name: shapes.update({name: tuple(args[2].shape[1:])})
        )
    encoder(torch.randn(1, 3, 32, 32))
    assert shapes["conv1"] == shapes["maxpool"] == shapes["layer1"] == (64, 32, 32)
    assert shapes["layer4"] == (512, 4, 4)
    # The count of the usual CIFAR ResNet-18 without its classifier.
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 11_168_832


def test_resnet_is_torchvisions():
    ours = create_encoder("resnet18")
    theirs = torchvision.models.resnet18()
    theirs.fc = nn.Identity()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))
    assert ours.layer1[0].bn2.weight.min() == 1  # residual branches start alive


class TestMoCoV3Transformer:
    def test_what_is_frozen(self):
        encoder = create_encoder("mocov3-vit-small", image_size=32)
        frozen = {
            name for name, parameter in encoder.named_parameters() if not parameter.requires_grad
        }
        assert frozen == {"pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"}
        thawed = create_encoder("mocov3-vit-small", image_size=32, freeze_patch_embed=False)
        assert thawed.patch_embed.proj.weight.requires_grad
        assert not thawed.pos_embed.requires_grad
        assert encoder.blocks[0].attn.num_heads == 12

    def test_patch_embedding_is_drawn_as_a_dense_layer(self):
        weight = create_encoder("mocov3-vit-small", image_size=32).patch_embed.proj.weight
        bound = math.sqrt(6 / (3 * 16 * 16 + 384))
        assert 0.99 * bound < weight.abs().max() <= bound
        assert abs(weight.std() / (bound / math.sqrt(3)) - 1) < 0.01

    def test_the_other_layers_are_drawn_as_mocov3_draws_them(self):
        encoder = create_encoder("mocov3-vit-small", image_size=32)
        block = encoder.blocks[5]
        for layer, inputs, outputs in (
            (block.attn.qkv, 384, 384),  # queries, keys and values are layers of their own
            (block.attn.proj, 384, 384),
            (block.mlp.fc1, 384, 1536),
            (block.mlp.fc2, 1536, 384),
        ):
            bound = math.sqrt(6 / (inputs + outputs))
            assert 0.99 * bound < layer.weight.abs().max() <= bound
            assert abs(layer.weight.std() / (bound / math.sqrt(3)) - 1) < 0.01
            assert not layer.bias.any()
        assert not encoder.patch_embed.proj.bias.any()
        assert 0 < encoder.cls_token.abs().max() < 1e-5
        norms = [module for module in encoder.modules() if isinstance(module, nn.LayerNorm)]
        assert len(norms) == 25
        assert {norm.eps for norm in norms} == {1e-6}

    @pytest.mark.parametrize("size", [128, 160, 224])
    def test_image_sizes(self, size):
        encoder = create_encoder("mocov3-vit-small", image_size=size).eval()
        patches = (size // 16) ** 2
        assert encoder.pos_embed.shape == (1, patches + 1, 384)
        # Twelve blocks of 12 d^2 + 13 d, a norm, the class token, positions, and the patches.
        d = 384
        weights = 12 * (12 * d**2 + 13 * d) + 2 * d + d + (patches + 1) * d + (3 * 16**2 + 1) * d
        assert sum(parameter.numel() for parameter in encoder.parameters()) == weights
        with torch.no_grad():
            images = torch.randn(1, 3, size, size)
            torch.testing.assert_close(encoder(images), encoder.forward_features(images)[:, 0])

    def test_positions(self):
        positions = sine_cosine_positions(3, 5, 16)
        assert positions.shape == (15, 16)
        row, column = 2, 4
        angle = [1, 0.1, 0.01, 0.001]
        expected = [
            f(axis * a) for axis in (row, column) for f in (math.sin, math.cos) for a in angle
        ]
        torch.testing.assert_close(positions[row * 5 + column], torch.tensor(expected))
        encoder = create_encoder("mocov3-vit-small", image_size=64)
        assert encoder.pos_embed.shape == (1, 17, 384)
        assert not encoder.pos_embed[0, 0].any()
        assert torch.equal(encoder.pos_embed[0, 1:], sine_cosine_positions(4, 4, 384))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: create_encoder("resnet19"), "encoder must be one of.*resnet18.*got 'resnet19'"),
        (lambda: create_encoder("timm/resnet19"), "timm has no model 'resnet19'"),
        (
            lambda: create_encoder("torchvision/resnet19"),
            "torchvision has no classifier 'resnet19'",
        ),
        (lambda: create_encoder("torchvision/fcn_resnet50"), "no classifier 'fcn_resnet50'"),
        (lambda: create_encoder("torchvision/squeezenet1_0"), "does not end in a linear"),
        (lambda: create_encoder("resnet18", stme="cifar"), "'resnet18' does not take.*'stme'"),
        (lambda: create_encoder("mocov3-vit-small", num_heads=5), "does not take these options"),
        (lambda: create_encoder("resnet18", stem="mnist"), "stem must be one of.*got 'mnist'"),
        (lambda: create_encoder("mocov3-vit-small", image_size=40), "multiple of.*got 40"),
        (
            lambda: create_encoder("mocov3-vit-small", image_size=32, patch_size=8),
            "patches of 16 pixels.*got {'patch_size': 8}: timm/vit_small_patch16_224 takes",
        ),
        (
            lambda: create_encoder("mocov3-vit-small", image_size=32, reg_tokens=4),
            "a class token only; got {'reg_tokens': 4}",
        ),
        (
            lambda: create_encoder("mocov3-vit-small", image_size=32, pos_embed="none"),
            "a class token only; got {'pos_embed': 'none'}",
        ),
        (lambda: sine_cosine_positions(2, 2, 6), "multiple of 4; got 6"),
        (lambda: feature_dimension(nn.Linear(2, 3)), "Linear does not say.*num_features"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
