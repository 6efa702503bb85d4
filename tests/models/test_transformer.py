"""Blocks with kernels against timm's: on a CPU by Triton's interpreter, and on a GPU."""

import copy
import importlib.util
from functools import partial
from unittest.mock import patch

import pytest
import torch
from interpreting import correct_bfloat16, interpret
from torch import nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention
from torch.nn.utils import parametrize

from dsf.models import create_encoder, transformer
from dsf.models.transformer import Blocks, PatchConvolution

needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")


def attention(qkv, bias, heads):
    parts = (qkv + (bias - bias.detach())).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    return scaled_dot_product_attention(*parts.unbind()).transpose(1, 2).flatten(2)


def compare(ours, theirs, inputs, tolerance, device="cpu"):
    """Outputs and gradients of both, in float64 for theirs; the error beside the largest value."""
    ours_in = [x.detach().to(device).requires_grad_() for x in inputs]
    theirs_in = [x.detach().double().requires_grad_() for x in inputs]
    out, expected = ours(*ours_in), theirs(*theirs_in)
    out, expected = ((o,) if isinstance(o, torch.Tensor) else o for o in (out, expected))
    weights = [torch.randn(o.shape).bfloat16() for o in expected]
    for outputs in (out, expected):
        pairs = zip(outputs, weights, strict=True)
        sum((o.double() * w.to(o)).sum() for o, w in pairs).backward()
    pairs = [*zip(out, expected, strict=True)]
    pairs += [(a.grad, b.grad) for a, b in zip(ours_in, theirs_in, strict=True)]
    for found, wanted in pairs:
        error = (found.cpu().double() - wanted).abs().max() / wanted.abs().max()
        assert error < tolerance, (error, [x.shape for x in inputs])


def check_kernels(device):
    """Each kernel against its definition; sizes that fill tiles, and that do not."""
    torch.manual_seed(0)
    sizes = (2, 5, 3, 16), (1, 64, 2, 32), (2, 65, 3, 32), (1, 197, 1, 32), (1, 256, 1, 16)
    far = torch.randn(1, 20, 48)
    far[..., 16:32] = far[..., :1].sign() * -30  # all logits far from zero
    problems = [(torch.randn(b, n, 3 * h * d) * 2, h, 0.01) for b, n, h, d in sizes]
    for qkv, heads, tolerance in [*problems, (far, 1, 0.05)]:
        compare(
            lambda q, b, h=heads: transformer._attend(q, b, h)[0],
            lambda q, b, h=heads: attention(q, b, h),
            (qkv.bfloat16(), torch.randn(qkv.shape[-1])), tolerance, device,
        )  # fmt: skip
    for rows, width in ((3, 40), (300, 520)):
        x, bias = torch.randn(2, rows, width).mul(3).bfloat16(), torch.randn(width)
        compare(transformer._gelu, lambda x, b: gelu(x + b), (x, bias), 0.005, device)
    for rows, width in ((3, 48), (150, 100)):
        x, branch = torch.randn(2, rows, width), torch.randn(2, rows, width).bfloat16()
        three = [torch.randn(width) for _ in range(3)]

        def theirs(x, branch, more, weight, bias, width=width):
            total = x + branch + more
            return total, layer_norm(total, (width,), weight, bias, 1e-6)

        def ours(*tensors):
            return transformer._add_norm_kernel(*tensors, 1e-6)[:2]

        compare(ours, theirs, (x, branch, *three), 0.006, device)
    exact = torch.linspace(-9, 9, 2001)
    zero = torch.zeros(1, 2001).bfloat16().to(device)
    found = transformer._gelu(zero, exact.to(device)).cpu()
    torch.testing.assert_close(found, gelu(exact.double())[None].bfloat16(), rtol=2**-8, atol=1e-6)


def check_encoder(device, heads):
    """A whole encoder and its gradients, beside timm's in float64."""
    torch.manual_seed(0)
    options = {"embed_dim": 64, "depth": 2, "num_heads": heads, "image_size": 48}
    encoder = create_encoder("mocov3-vit-small", **options).to(device)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.2) if parameter.dim() == 1 else None
    plain = copy.deepcopy(encoder).double().cpu()
    images = torch.randn(4, 3, 48, 48)
    expected = plain(images.double())
    with torch.autocast(device, torch.bfloat16):
        found = encoder(images.to(device))
    weights = torch.randn(expected.shape)
    (found * weights.to(device)).sum().backward()
    (expected * weights).sum().backward()
    assert (found.cpu() - expected).abs().max() < 0.05
    for (name, ours), theirs in zip(encoder.named_parameters(), plain.parameters(), strict=True):
        if theirs.grad is None:
            assert ours.grad is None, name
            continue
        error = (ours.grad.cpu() - theirs.grad).norm() / theirs.grad.norm()
        assert error < 0.05, (name, error)


def check_compiled(device, backend, tolerance):
    """In one graph, whose gradients are those of the encoder as it is."""
    torch.manual_seed(0)
    options = {"embed_dim": 64, "depth": 2, "num_heads": 2, "image_size": 48}
    encoder = create_encoder("mocov3-vit-small", **options).to(device)
    images = torch.randn(4, 3, 48, 48, device=device)
    weights = torch.randn(4, 64, device=device)  # lengths alone are always alike, after LayerNorm
    results = []
    for function in (encoder, torch.compile(encoder, fullgraph=True, backend=backend)):
        with torch.autocast(device, torch.bfloat16):
            features = function(images)
        found = torch.autograd.grad((features * weights).sum(), encoder.blocks.parameters())
        results.append((features, *found))
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).norm() / theirs.norm() < tolerance


@needs_triton
@pytest.mark.compiles
def test_interpreted():
    run = interpret(__file__)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "add_norm attend gelu\n"


@pytest.fixture
def without_kernels(monkeypatch):
    """Makes encoders that believe in kernels, and fail where the first would begin."""
    monkeypatch.setattr(transformer, "_has_kernels", lambda x: True)
    monkeypatch.setattr(transformer, "_add_norm", None)
    return partial(create_encoder, "mocov3-vit-small", embed_dim=48, depth=2, num_heads=3)


class TestBlocks:
    def test_is_used_and_changes_no_name(self):
        import timm

        ours = create_encoder("mocov3-vit-small", embed_dim=48, depth=2, num_heads=3)
        theirs = timm.create_model(
            "vit_small_patch16_224", num_classes=0, embed_dim=48, depth=2, num_heads=3
        )
        assert isinstance(ours.blocks, Blocks)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        theirs.load_state_dict(ours.state_dict())
        images = torch.randn(2, 3, 224, 224)
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize(
        "options",
        [
            {"qk_norm": True},
            {"init_values": 0.1},
            {"drop_path_rate": 0.1},
            {"proj_drop_rate": 0.1},
            {"attn_drop_rate": 0.1},
            {"qkv_bias": False},
            {"act_layer": "relu"},
            {"norm_layer": "rmsnorm"},
        ],
        ids=lambda options: next(iter(options)),
    )
    def test_other_blocks_stay_as_they_are(self, options):
        small = {"embed_dim": 48, "depth": 2, "num_heads": 3}
        encoder = create_encoder("mocov3-vit-small", **small, **options)
        assert type(encoder.blocks) is nn.Sequential

    @pytest.mark.parametrize(
        "kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"]
    )
    def test_hooks_are_not_passed_over(self, without_kernels, kind):
        encoder, seen = without_kernels(), []
        norm = encoder.blocks[1].norm2
        handle = getattr(norm, f"register_{kind}_hook")(lambda *_: seen.append(1))
        images = torch.randn(1, 3, 224, 224)
        encoder(images).sum().backward()
        assert seen
        handle.remove()
        with pytest.raises(TypeError):
            encoder(images)

    def test_exchanged_layers_are_not_passed_over(self, without_kernels):
        encoder = without_kernels()
        parametrize.register_parametrization(encoder.blocks[0].attn.qkv, "weight", nn.Identity())
        encoder(torch.randn(1, 3, 224, 224))

    @pytest.mark.parametrize(
        ("part", "other"),
        [
            ("norm1", nn.RMSNorm(48)),
            ("mlp.act", nn.ReLU()),
            ("mlp.drop1", nn.Dropout(0.1)),
            ("drop_path1", nn.Dropout(0.1)),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_exchanged_parts_are_not_passed_over(self, without_kernels, part, other):
        encoder = without_kernels()
        encoder.blocks[1].set_submodule(part, other)
        encoder(torch.randn(1, 3, 224, 224))

    def test_rates_that_were_changed_are_not_passed_over(self, without_kernels):
        encoder = without_kernels()
        encoder.blocks[0].attn.proj_drop.p = 0.1
        encoder(torch.randn(1, 3, 224, 224))

    def test_no_kernels_on_a_cpu(self):
        assert not transformer._has_kernels(torch.randn(1, 2, 3))
        with torch.autocast("cpu", torch.bfloat16):
            assert not transformer._has_kernels(torch.randn(1, 2, 3))


class TestPatchConvolution:
    @pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
    @pytest.mark.parametrize("size", [(32, 48), (35, 50)])
    def test_is_a_convolution(self, size, layout):
        patches = PatchConvolution(3, 10, (16, 16))
        images = torch.randn(2, 3, *size).to(memory_format=layout)
        expected = nn.functional.conv2d(images, patches.weight, patches.bias, stride=16)
        torch.testing.assert_close(patches(images), expected, rtol=1e-5, atol=1e-5)


@needs_triton
@pytest.mark.parametrize("tokens", [197, 256])
@pytest.mark.parametrize(
    ("capability", "room"),
    [(80, 166_912), (89, 101_376), (90, 232_448)],
    ids=["A100", "4090", "H100"],
)
def test_compiles_for_gpus_that_are_not_here(capability, room, tokens):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from dsf.models import _attention

    shape, _ = _attention._shape(tokens, 32)
    for kernel, options in (
        (_attention._attend, _attention._FORWARD),
        (_attention._attend_queries, _attention._QUERIES),
        (_attention._attend_keys, _attention._KEYS),
    ):
        kinds = {"H": "i32", "scale": "fp32", "factor": "fp32"}
        kinds |= dict.fromkeys(("total", "alongs", "of_bias"), "*fp32")
        signature = {
            name: "constexpr" if name in shape else kinds.get(name, "*bf16")
            for name in kernel.arg_names
        }
        source = ASTSource(kernel, signature, shape)
        compiled = triton.compile(source, GPUTarget("cuda", capability, 32), options)
        assert compiled.metadata.shared <= room


@pytest.mark.gpu
class TestCUDA:
    @pytest.mark.parametrize("device", ["cuda:0", pytest.param("cuda:1", marks=needs_two)])
    def test_kernels(self, device):
        check_kernels(device)

    @pytest.mark.parametrize("heads", [2, 1])
    def test_encoder(self, heads):
        check_encoder("cuda", heads)

    def test_compiled(self):
        check_compiled("cuda", "inductor", 0.02)


if __name__ == "__main__":
    correct_bfloat16()
    from dsf.models import _attention, _kernels

    used = {}
    for module, name in ((_attention, "attend"), (_kernels, "gelu"), (_kernels, "add_norm")):
        kernel = getattr(module, name)
        setattr(module, name, lambda *x, n=name, k=kernel: used.setdefault(n, k)(*x))
    check_kernels("cpu")
    used.clear()
    with patch.object(transformer, "_has_kernels", lambda x: x.dtype is torch.float32):
        check_encoder("cpu", heads=1)  # too wide for our own attention
        assert sorted(used) == ["add_norm", "gelu"]
        check_encoder("cpu", heads=2)
        check_compiled("cpu", "aot_eager", 1e-5)
    print(*sorted(used))
