"""BatchNorm in splits: several small batches within a large one."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class SplitBatchNorm(_BatchNorm):
    """BatchNorm with statistics of its own for each of n interleaved groups of the batch.

    Sample i belongs to group i mod n, so that the views of an image, which lie side by side, fall
    into different groups. It equals n BatchNorms of which each sees its own group, and whose
    running statistics are averaged. Contrast with a key encoder needs it: with one group, a query
    and its key share their statistics and no other key does.

    Takes (N, C), (N, C, L), (N, C, H, W) and so on, in any memory format, and keeps it.

    Args:
        num_features: C.
        splits: n, which must divide the batch in training; evaluation knows no groups.
        eps, momentum, affine, track_running_stats: as for ``nn.BatchNorm2d``.
    """

    def __init__(
        self,
        num_features: int,
        splits: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        if splits < 1:
            raise ValueError(f"splits must be at least 1; got {splits}")
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.splits = splits
        self._share_of_new()

    def forward(self, input: Tensor) -> Tensor:
        """Normalise; in training by the statistics of each group."""
        if input.dim() < 2:
            raise ValueError(f"input must have shape (N, C, ...); got {tuple(input.shape)}")
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        if input.shape[0] % self.splits:
            raise ValueError(
                f"{self.splits} splits do not divide a batch of {input.shape[0]} samples"
            )
        if input[0, 0].numel() * input.shape[0] // self.splits < 2:
            raise ValueError(
                f"a split needs more than one value a channel; got {tuple(input.shape)} "
                f"in {self.splits} splits"
            )
        if input.is_contiguous():
            return self._native(input)
        return self._grouped(input)

    def _native(self, input: Tensor) -> Tensor:
        # In this layout the channels of a row of groups follow each other like channels of one
        # sample, and the library's own kernel can take them as such.
        n = self.splits
        wide = input.reshape(input.shape[0] // n, n * input.shape[1], *input.shape[2:])
        weight, bias, mean, var = (
            None if tensor is None else tensor.repeat(n)
            for tensor in (self.weight, self.bias, self.running_mean, self.running_var)
        )
        result = batch_norm(wide, mean, var, weight, bias, True, self._share_of_new(), self.eps)
        if self.training and mean is not None and var is not None:
            self._keep(mean.view(n, -1).mean(dim=0), var.view(n, -1).mean(dim=0))
        return result.view(input.shape)

    def _grouped(self, input: Tensor) -> Tensor:
        result, mean, var = _Normalise.apply(input, self.weight, self.bias, self.splits, self.eps)
        if self.training and self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                share = self._share_of_new()
                count = input.numel() // (self.splits * self.num_features)
                variances = var.mean(dim=0) * (count / (count - 1))
                self._keep(
                    self.running_mean.lerp(mean.mean(dim=0), share),
                    self.running_var.lerp(variances, share),
                )
        output: Tensor = result
        return output

    def _share_of_new(self) -> float:
        """The momentum, which may have been changed since."""
        if self.momentum is None:
            raise ValueError("SplitBatchNorm keeps moving averages: momentum must be a number")
        return self.momentum

    @torch.no_grad()
    def _keep(self, mean: Tensor, var: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.running_mean.copy_(mean)
        self.running_var.copy_(var)
        self.num_batches_tracked.add_(1)

    def _check_input_dim(self, input: Tensor) -> None:
        pass  # any, as checked in forward

    def extra_repr(self) -> str:
        """The settings."""
        settings: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{settings}, splits={self.splits}"


class _Normalise(torch.autograd.Function):
    """Normalise by group, without ever changing the shape, and so the memory format, of the input.

    Sums run over each sample first and over the samples of a group, (N, C) numbers, after that.
    Only the input and the statistics are kept for backward.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        values = _wide(input)
        inside = list(range(2, values.dim()))
        if inside:
            var, mean = torch.var_mean(values, inside, correction=0)
        else:
            var, mean = torch.zeros_like(values), values
        between, group_mean = torch.var_mean(mean.unflatten(0, (-1, n)), dim=0, correction=0)
        group_var = var.unflatten(0, (-1, n)).mean(dim=0) + between
        scale = torch.rsqrt(group_var + eps)
        gain = scale if weight is None else scale * weight
        result = (values - _spread(group_mean, values)) * _spread(gain, values)
        if bias is not None:
            result = result + bias.view(-1, *[1] * (values.dim() - 2))
        ctx.save_for_backward(input, weight, group_mean, scale)
        ctx.mark_non_differentiable(group_mean, group_var)
        # Not always by `to`: where it changes nothing, torch 2.11's compiler loses the gradient.
        output = result if result.dtype is input.dtype else result.to(input.dtype)
        return output, group_mean, group_var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, mean, scale = ctx.saved_tensors
        n, gradient = len(mean), _wide(gradient)
        # Not by `_wide`: compiled, its copy would be kept for this instead of the input.
        normal = (input - _spread(mean, input)) * _spread(scale, input)
        of_bias, of_weight = (_group_sums(each, n) for each in (gradient, gradient * normal))
        count = input.numel() // mean.numel()
        gain = scale if weight is None else scale * weight
        of_input = _spread(gain, input) * (
            gradient - _spread(of_bias / count, input) - normal * _spread(of_weight / count, input)
        )
        affine = weight is not None
        return (
            of_input.to(input.dtype),
            of_weight.sum(dim=0).to(weight.dtype) if affine else None,
            of_bias.sum(dim=0).to(weight.dtype) if affine else None,
            None,
            None,
        )


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype is torch.float64 else values.float()


def _spread(statistics: Tensor, like: Tensor) -> Tensor:
    """(n, C) numbers of groups to their samples, (N, C, 1, ...)."""
    samples = statistics.repeat(like.shape[0] // len(statistics), 1)
    return samples.view(*like.shape[:2], *[1] * (like.dim() - 2))


def _group_sums(values: Tensor, n: int) -> Tensor:
    samples = values.sum(dim=list(range(2, values.dim()))) if values.dim() > 2 else values
    result: Tensor = samples.unflatten(0, (-1, n)).sum(dim=0)
    return result


def split_batch_norm(module: ModuleT, splits: int) -> ModuleT:
    """Replace every BatchNorm in ``module`` by a SplitBatchNorm with the same tensors, in place.

    Returns the module, or its replacement where it is a BatchNorm itself.
    """
    if isinstance(module, SplitBatchNorm):
        if module.splits != splits:
            raise ValueError(f"the module has {module.splits} splits already; got {splits}")
        return module
    if isinstance(module, _BatchNorm):
        if type(module) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            raise ValueError(
                f"cannot split {type(module).__name__}, which may do more than BatchNorm; "
                "build the model with a plain nn.BatchNorm2d"
            )
        if module.momentum is None:
            raise ValueError("cannot split a BatchNorm without momentum (a cumulative average)")
        result = SplitBatchNorm(
            module.num_features,
            splits,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
        )
        return _in_place_of(module, result)
    for name, child in module.named_children():
        setattr(module, name, split_batch_norm(child, splits))
    return module


def _in_place_of(module: ModuleT, result: _BatchNorm) -> ModuleT:
    """Another BatchNorm with the tensors and the mode of a module."""
    for name, tensor in (module._parameters | module._buffers).items():
        setattr(result, name, tensor)
    return result.train(module.training)  # type: ignore[return-value]


class _WholeBatchNorm(_BatchNorm):
    def _check_input_dim(self, input: Tensor) -> None:
        pass  # as SplitBatchNorm, whose place it takes


def join_batch_norm(module: ModuleT) -> ModuleT:
    """Undo ``split_batch_norm``, in place: for training where nothing is contrasted.

    Returns the module, or its replacement where it is a SplitBatchNorm itself.
    """
    if isinstance(module, SplitBatchNorm):
        result = _WholeBatchNorm(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
        )
        return _in_place_of(module, result)
    for name, child in module.named_children():
        setattr(module, name, join_batch_norm(child))
    return module
