"""What makes timm's vision transformers faster: the same functions of the same parameters."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

_HAS_TRITON = find_spec("triton") is not None
_MOST_TOKENS = 256  # which attention of our own keeps in four tiles
_WIDTHS = (16, 32)  # of a head; wider ones torch's own attention is made for
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class PatchConvolution(nn.Conv2d):
    """A convolution of patches that do not overlap: one matrix product.

    cuDNN pads the three channels to eight and takes several times as long.
    """

    def __init__(self, inputs: int, outputs: int, size: tuple[int, int]) -> None:
        super().__init__(inputs, outputs, kernel_size=size, stride=size)

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) to (N, outputs, rows, columns)."""
        high, wide = self.kernel_size
        rows, columns = images.shape[-2] // high, images.shape[-1] // wide
        images = images[..., : rows * high, : columns * wide]
        patches = images.unflatten(3, (columns, wide)).unflatten(2, (rows, high))
        patches = patches.permute(0, 2, 4, 3, 5, 1).flatten(3)
        weight = self.weight.permute(0, 2, 3, 1).flatten(1)
        return linear(patches, weight, self.bias).permute(0, 3, 1, 2)


class Blocks(nn.Sequential):
    """The blocks of one of timm's transformers.

    In bfloat16 by autocast on Nvidia's Ampere or later what lies between the products runs in
    kernels of our own: attention, GELU, and the sum before each LayerNorm together with it.
    Elsewhere, and where a part was exchanged or has a hook, timm's blocks are as they were. The
    kernels have no second derivatives.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, C) tokens through all blocks."""
        block: Any
        if not _has_kernels(x) or any(_is_touched(block) for block in self):
            for block in self:
                x = block(x)
            return x
        x = x.float()
        branch: Tensor | None = None
        branch_bias: Tensor | None = None
        for block in self:
            x, y = _add_norm(x, branch, branch_bias, block.norm1)
            y = _attention(y, block.attn.qkv, block.attn.num_heads)
            branch, branch_bias = linear(y, block.attn.proj.weight), block.attn.proj.bias
            x, y = _add_norm(x, branch, branch_bias, block.norm2)
            y = _gelu(linear(y, block.mlp.fc1.weight), block.mlp.fc1.bias)
            branch, branch_bias = linear(y, block.mlp.fc2.weight), block.mlp.fc2.bias
        return x if branch is None or branch_bias is None else x + (branch + branch_bias)


def with_kernels(blocks: nn.Sequential) -> nn.Sequential:
    """The same blocks as ``Blocks`` where they are what its kernels compute."""
    return Blocks(*blocks) if all(map(_is_plain, blocks)) else blocks


def _is_plain(block: Any) -> bool:
    from timm.models import vision_transformer

    timm: Any = vision_transformer
    parts = {block: timm.Block, block.attn: timm.Attention, block.mlp: timm.Mlp}
    if any(type(part) is not kind for part, kind in parts.items()):
        return False
    attention, mlp = block.attn, block.mlp
    norms = block.norm1, block.norm2
    layers = attention.qkv, attention.proj, mlp.fc1, mlp.fc2
    return (
        all(isinstance(norm, nn.LayerNorm) and norm.bias is not None for norm in norms)
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in layers)
        and type(mlp.act) is nn.GELU
        and mlp.act.approximate == "none"
        and attention.scale == attention.head_dim**-0.5
        and getattr(attention, "gate", None) is None
        and all(map(_does_nothing, _between(block)))
    )


def _between(block: Any) -> list[nn.Module]:
    attention, mlp = block.attn, block.mlp
    return [
        *(block.ls1, block.ls2, block.drop_path1, block.drop_path2),
        *(attention.q_norm, attention.k_norm, getattr(attention, "norm", nn.Identity())),
        *(attention.attn_drop, attention.proj_drop),
        *(mlp.drop1, mlp.norm, mlp.drop2),
    ]


def _does_nothing(module: nn.Module) -> bool:
    return isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and module.p == 0)


def _is_touched(block: Any) -> bool:
    """Whether the kernels would pass over something that was done to a plain block since."""
    return not _is_plain(block) or any(
        getattr(module, hooks) for module in block.modules() for hooks in _HOOKS
    )


def _has_kernels(x: Tensor) -> bool:
    return (
        _HAS_TRITON
        and x.is_cuda
        and not torch.version.hip
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") is torch.bfloat16
        and torch.cuda.get_device_properties(x.device).major >= 8
    )


def _add_norm(
    x: Tensor, branch: Tensor | None, branch_bias: Tensor | None, norm: nn.LayerNorm
) -> tuple[Tensor, Tensor]:
    """The sum, and its LayerNorm in bfloat16."""
    if branch is None or branch_bias is None:
        y = layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        return x, y.bfloat16()
    total, y, *_ = _add_norm_kernel(x, branch, branch_bias, norm.weight, norm.bias, norm.eps)
    return total, y


def _attention(y: Tensor, layer: nn.Linear, heads: int) -> Tensor:
    tokens, width = y.shape[1], layer.out_features // 3 // heads
    if tokens <= _MOST_TOKENS and width in _WIDTHS:
        out: Tensor = _attend(linear(y, layer.weight, layer.bias.detach()), layer.bias, heads)[0]
        return out
    parts = layer(y).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    return scaled_dot_product_attention(*parts.unbind()).transpose(1, 2).flatten(2)


# Operators of their own, into which a compiler does not look. Triton starts kernels on the current
# GPU, which need not be that of the tensors.


@torch.library.custom_op("dsf::attend", mutates_args=())
def _attend(qkv: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    # The bias is in qkv; here it is given a gradient, which costs less than from that of qkv.
    from dsf.models import _attention as kernels

    with torch.cuda.device_of(qkv):
        return kernels.attend(qkv.contiguous(), heads)


@_attend.register_fake
def _(qkv: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    images, tokens, width = qkv.shape
    total = qkv.new_empty((images, heads, tokens), dtype=torch.float32)
    return qkv.new_empty((images, tokens, width // 3)), total


@torch.library.custom_op("dsf::attend_backward", mutates_args=())
def _attend_backward(
    qkv: Tensor, out: Tensor, total: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    from dsf.models import _attention as kernels

    with torch.cuda.device_of(qkv):
        return kernels.attend_backward(qkv.contiguous(), out, total, gradient.contiguous())


@_attend_backward.register_fake
def _(qkv: Tensor, out: Tensor, total: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    return qkv.new_empty(qkv.shape), total.new_empty(qkv.shape[-1])


def _save_attended(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], *output)


def _backward_of_attend(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_attend_backward(*ctx.saved_tensors, gradient), None


_attend.register_autograd(_backward_of_attend, setup_context=_save_attended)


@torch.library.custom_op("dsf::gelu", mutates_args=())
def _gelu(x: Tensor, bias: Tensor) -> Tensor:
    from dsf.models import _kernels

    with torch.cuda.device_of(x):
        return _kernels.gelu(x.contiguous(), bias)


@_gelu.register_fake
def _(x: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("dsf::gelu_backward", mutates_args=())
def _gelu_backward(x: Tensor, bias: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    from dsf.models import _kernels

    with torch.cuda.device_of(x):
        return _kernels.gelu_backward(x.contiguous(), bias, gradient.contiguous())


@_gelu_backward.register_fake
def _(x: Tensor, bias: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), torch.empty_like(bias)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward_of_gelu(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = _gelu_backward(*ctx.saved_tensors, gradient)
    return found


_gelu.register_autograd(_backward_of_gelu, setup_context=_save_inputs)


@torch.library.custom_op("dsf::add_norm", mutates_args=())
def _add_norm_kernel(
    x: Tensor, branch: Tensor, branch_bias: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from dsf.models import _kernels

    with torch.cuda.device_of(x):
        return _kernels.add_norm(
            x.contiguous(), branch.contiguous(), branch_bias, weight, bias, eps
        )


@_add_norm_kernel.register_fake
def _(
    x: Tensor, branch: Tensor, branch_bias: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = x.shape[:-1]
    return (
        *(x.new_empty(x.shape), branch.new_empty(x.shape)),
        *(x.new_empty(rows), x.new_empty(rows)),
    )


@torch.library.custom_op("dsf::add_norm_backward", mutates_args=())
def _add_norm_backward(
    total: Tensor, weight: Tensor, mean: Tensor, scale: Tensor, of_total: Tensor, of_out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    from dsf.models import _kernels

    of_total, of_out = of_total.contiguous(), of_out.contiguous()
    with torch.cuda.device_of(total):
        return _kernels.add_norm_backward(total, weight, mean, scale, of_total, of_out)


@_add_norm_backward.register_fake
def _(
    total: Tensor, weight: Tensor, mean: Tensor, scale: Tensor, of_total: Tensor, of_out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    sums = weight.new_empty((3, len(weight)))
    return total.new_empty(total.shape), of_out.new_empty(total.shape), sums


def _save_normed(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    total, _, mean, scale = output
    ctx.save_for_backward(total, inputs[3], mean, scale)


def _backward_of_add_norm(
    ctx: Any, of_total: Tensor, of_out: Tensor, *_: Tensor
) -> tuple[Tensor | None, ...]:
    of_x, of_branch, sums = _add_norm_backward(*ctx.saved_tensors, of_total, of_out)
    return of_x, of_branch, *sums.unbind(), None


_add_norm_kernel.register_autograd(_backward_of_add_norm, setup_context=_save_normed)
