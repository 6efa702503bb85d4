"""Files as other projects write them, by the names in their sources; the weights are random."""

import argparse

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from dsf.models import create_encoder, load_foreign
from dsf.models.foreign.names import to_torchvision_transformer

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)


@pytest.fixture(autouse=True)
def _alive():
    """BatchNorms whose statistics are not those they begin with."""
    torch.manual_seed(0)


def lively(model):
    """Statistics and weights of norms that tell where they come from."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("running_mean"):
                tensor.normal_(0, 0.1)
            elif name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
    return model.eval()


def resnet18(small=False, padding=1):
    model = lively(torchvision.models.resnet18())
    model.fc = nn.Identity()
    if small:
        model.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=padding, bias=False)
        model.maxpool = nn.Identity()
    return model


def transformer(heads, width="small", depth=2, size=32):
    name = f"vit_{width}_patch16_224"
    return timm.create_model(
        name, num_classes=0, img_size=size, num_heads=heads, depth=depth
    ).eval()


def mlp(*widths):
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.ReLU(), nn.Linear(widths[1], 8))


def prefixed(prefix, module):
    return {f"{prefix}{name}": tensor for name, tensor in module.state_dict().items()}


def optimiser(module):
    """The state of one that has made a step."""
    made = torch.optim.AdamW(module.parameters())
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    made.step()
    return made.state_dict()


def mocov3(encoder, head, path):
    """What main_moco.py saves: a wrapped model, its optimiser and the loss scaler."""
    state = {}
    for part in ("base_encoder", "momentum_encoder"):
        other = mlp(encoder.num_features if head == "head" else 512, 16)
        scale = 1.0 if part == "base_encoder" else 0.5
        own = {name: tensor * scale for name, tensor in encoder.state_dict().items()}
        state |= {f"module.{part}.{name}": tensor for name, tensor in own.items()}
        state |= prefixed(f"module.{part}.{head}.", other)
    predictor = mlp(8, 16)
    state |= prefixed("module.predictor.", predictor)
    content = {
        "epoch": 100,
        "arch": "vit_small",
        "state_dict": state,
        "optimizer": optimiser(predictor),
        "scaler": {"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 0},
    }
    torch.save(content, path)
    return path


def lightning(state, path):
    """What Lightning's trainer saves around a state dict."""
    layer = nn.Linear(2, 2)
    content = {
        "epoch": 5,
        "global_step": 100,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": state,
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {},
        "optimizer_states": [optimiser(layer)],
        "lr_schedulers": [{"last_epoch": 5}],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 0.06, "batch_size_per_device": 128},
    }
    torch.save(content, path)
    return path


@torch.no_grad()
def same(found, expected, size=32):
    images = torch.randn(3, 3, size, size)
    wanted = expected(images).flatten(1)
    assert wanted.std(dim=0).max() > 1e-3
    torch.testing.assert_close(found.encoder(images), wanted, rtol=1e-5, atol=1e-5)
    return True


def test_mocov3_transformer(tmp_path):
    encoder = transformer(heads=12)
    found = load_foreign(mocov3(encoder, "head", tmp_path / "checkpoint_0099.pth.tar"))
    assert same(found, encoder)
    assert (found.kind, found.name) == ("MoCo v3", "mocov3-vit-small")
    assert found.options == {"num_heads": 12, "image_size": 32, "depth": 2}
    assert found.image_size is None
    assert found.mean == (0.485, 0.456, 0.406)
    assert len(found.sha256) == 64
    assert not found.encoder.training


def test_mocov3_resnet(tmp_path):
    encoder = resnet18()
    found = load_foreign(mocov3(encoder, "fc", tmp_path / "checkpoint.pth.tar"))
    assert same(found, encoder, size=64)
    assert (found.name, found.options, found.image_size) == ("resnet18", {}, 224)


def test_the_authors_on_cifar(tmp_path):
    """MoCo's code for CIFAR, which the authors' follows: children in a row, without pooling."""
    model = resnet18(small=True)
    parts = [part for name, part in model.named_children() if name not in ("maxpool", "fc")]
    net = nn.Sequential(*parts, nn.Flatten(1), mlp(512, 512))
    state = prefixed("encoder_q.net.", net) | prefixed("encoder_k.net.", lively(net))
    state |= {"queue": torch.randn(8, 32), "queue_ptr": torch.zeros(1, dtype=torch.long)}
    net.load_state_dict(
        {n.removeprefix("encoder_q.net."): t for n, t in state.items() if "_q" in n}
    )
    path = tmp_path / "model_last.pth"
    torch.save({"epoch": 250, "state_dict": state, "optimizer": optimiser(net[-1])}, path)
    found = load_foreign(path)
    assert same(found, net[:-1])
    assert (found.kind, found.name, found.options) == (
        "MoCo on CIFAR",
        "resnet18",
        {"stem": "cifar"},
    )
    assert (found.image_size, found.mean, found.std) == (32, CIFAR_MEAN, (0.2023, 0.1994, 0.2010))


def test_moco(tmp_path):
    encoder = resnet18()
    state = prefixed("module.encoder_q.", encoder) | prefixed(
        "module.encoder_k.", lively(resnet18())
    )
    state |= prefixed("module.encoder_q.fc.", mlp(512, 512))
    state["module.queue"] = torch.randn(8, 32)
    content = {"epoch": 200, "arch": "resnet18", "state_dict": state}
    # As torch wrote files in the year of MoCo.
    torch.save(content, tmp_path / "moco.pth.tar", _use_new_zipfile_serialization=False)
    found = load_foreign(tmp_path / "moco.pth.tar")
    assert (found.kind, found.name) == ("MoCo", "resnet18")
    assert same(found, encoder, size=64)


def test_lightly_with_its_own_resnet(tmp_path):
    from lightly.models import ResNetGenerator
    from lightly.models.modules.heads import MoCoProjectionHead

    resnet = lively(ResNetGenerator("resnet-9"))
    backbone = nn.Sequential(*list(resnet.children())[:-1], nn.AdaptiveAvgPool2d(1))
    state = prefixed("backbone.", backbone) | prefixed("backbone_momentum.", backbone)
    state |= prefixed("projection_head.", MoCoProjectionHead(512, 512, 128))
    found = load_foreign(lightning(state, tmp_path / "epoch=5.ckpt"))
    # The ReLU after the first norm is no child: what was trained, and what is loaded, has none.
    assert same(found, backbone)
    assert (found.kind, found.name, found.options) == ("lightly", "resnet-small", {"width": 64})


def test_lightly_with_torchvisions_resnet(tmp_path):
    from lightly.models.modules.heads import SimCLRProjectionHead

    encoder = resnet18()
    backbone = nn.Sequential(*list(encoder.children())[:-1])
    state = prefixed("backbone.", backbone)
    state |= prefixed("projection_head.", SimCLRProjectionHead(512, 512, 128))
    found = load_foreign(lightning(state, tmp_path / "last.ckpt"))
    assert same(found, encoder, size=64)
    assert (found.kind, found.name, found.options) == ("lightly", "resnet18", {})


@pytest.mark.parametrize("name", ["backbone", "encoder"])
def test_solo_learn_on_cifar(tmp_path, name):
    """Its stem for CIFAR pads by two pixels, which no tensor tells."""
    encoder = resnet18(small=True, padding=2)
    state = prefixed(f"{name}.", encoder) | prefixed("classifier.", nn.Linear(512, 10))
    state |= prefixed("projector.", mlp(512, 64)) | prefixed(f"momentum_{name}.", resnet18(True))
    state |= prefixed("momentum_projector.", mlp(512, 64)) | {"queue": torch.randn(2, 8, 16)}
    found = load_foreign(lightning(state, tmp_path / "mocov2plus-cifar10-ep=999.ckpt"))
    assert same(found, encoder)
    assert found.kind == "solo-learn"
    assert (found.mean, found.std) == (CIFAR_MEAN, (0.2470, 0.2435, 0.2616))


def test_solo_learns_transformers_do_not_tell_their_heads(tmp_path):
    encoder = transformer(heads=12)
    state = prefixed("backbone.", encoder) | prefixed("classifier.", nn.Linear(384, 10))
    path = lightning(state, tmp_path / "mocov3.ckpt")
    with pytest.raises(ValueError, match=r"no tensor tells how many heads .* num_heads=12"):
        load_foreign(path)
    assert same(load_foreign(path, {"num_heads": 12}), encoder)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_state_dicts_of_timm(tmp_path, suffix):
    encoder = transformer(heads=6)
    state = encoder.state_dict() | {
        "head.weight": torch.zeros(10, 384),
        "head.bias": torch.ones(10),
    }
    path = tmp_path / f"vit{suffix}"
    (torch.save if suffix == ".pth" else save_file)(state, path)
    found = load_foreign(path)
    assert same(found, encoder)
    assert (found.kind, found.name) == ("timm", "timm/vit_small_patch16_224")
    assert found.options["num_heads"] == 6


def test_a_training_checkpoint_of_timm(tmp_path):
    """Its arguments are a Namespace: names and values, which are let in."""
    encoder = lively(timm.create_model("resnet34", num_classes=0))
    state = {f"module.{name}": tensor for name, tensor in encoder.state_dict().items()}
    arguments = argparse.Namespace(model="resnet34", lr=0.1, mean=[0.5, 0.5, 0.5])
    content = {"epoch": 3, "arch": "resnet34", "state_dict": state, "version": 2, "args": arguments}
    torch.save(content, tmp_path / "last.pth.tar")
    found = load_foreign(tmp_path / "last.pth.tar")
    assert found.name == "resnet34"
    assert same(found, encoder, size=64)


def test_torchvisions_transformer(tmp_path):
    encoder = torchvision.models.VisionTransformer(
        image_size=32, patch_size=16, num_layers=2, num_heads=6, hidden_dim=384, mlp_dim=1536
    ).eval()
    torch.save(encoder.state_dict(), tmp_path / "vit.pth")
    encoder.heads = nn.Identity()
    with pytest.raises(ValueError, match="heads a transformer of torchvision of width 384 has"):
        load_foreign(tmp_path / "vit.pth")
    found = load_foreign(tmp_path / "vit.pth", {"num_heads": 6})
    assert found.kind == "torchvision"
    assert same(found, encoder)


@pytest.mark.parametrize("kind", ["timm", "torchvision", "solo-learn"])
def test_positions_tell_mocov3s_transformers(tmp_path, kind):
    """Its small one has twice the heads of timm's, and no tensor but the positions says so."""
    encoder = create_encoder("mocov3-vit-small", image_size=32, depth=2).eval()
    state = encoder.state_dict()
    if kind == "torchvision":
        state = to_torchvision_transformer(state)
    if kind == "solo-learn":
        state = prefixed("backbone.", encoder) | prefixed("classifier.", nn.Linear(384, 10))
    torch.save(state, tmp_path / "vit.pth")
    found = load_foreign(tmp_path / "vit.pth")
    assert (found.kind, found.options["num_heads"]) == (kind, 12)
    assert same(found, encoder)


def test_an_encoder_by_name(tmp_path):
    """Any architecture, if its name is given; also a normalisation."""
    encoder = lively(create_encoder("timm/resnet10t"))
    torch.save(encoder.state_dict() | {"fc.weight": torch.zeros(2, 512)}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="of timm or torchvision|no encoder that is known"):
        load_foreign(tmp_path / "weights.pt")
    options = {"encoder": "timm/resnet10t", "mean": [0.5, 0.5, 0.5], "std": [1, 1, 1]}
    found = load_foreign(tmp_path / "weights.pt", options)
    assert same(found, encoder, size=64)
    assert (found.mean, found.std) == ((0.5, 0.5, 0.5), (1.0, 1.0, 1.0))


def test_bottlenecks_and_old_files_without_counters(tmp_path):
    encoder = lively(torchvision.models.resnet50())
    state = encoder.state_dict()
    encoder.fc = nn.Identity()
    old = {name: tensor for name, tensor in state.items() if "num_batches" not in name}
    torch.save(old, tmp_path / "resnet50.pth")
    found = load_foreign(tmp_path / "resnet50.pth")
    assert found.name == "resnet50"
    assert same(found, encoder, size=64)
