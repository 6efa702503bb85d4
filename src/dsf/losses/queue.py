"""The memory queue of keys."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class Queue(nn.Module):
    """The last K keys, in buffers that are saved with the model.

    Args:
        size: K.
        shapes: the shape of one key's entry in each buffer, by name. A buffer starts as random
            unit vectors along its last dimension, one of shape () as zeros.

    ``filled`` counts the real keys, up to K. Nothing here synchronises with the device.
    """

    position: Tensor
    filled: Tensor

    def __init__(self, size: int, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"the size of the queue must be at least 1; got {size}")
        self.size = size
        self.names = tuple(shapes)
        for name, shape in shapes.items():
            initial = normalize(torch.randn(size, *shape), dim=-1) if shape else torch.zeros(size)
            self.register_buffer(name, initial)
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))

    def read(self, like: Tensor) -> tuple[Tensor, ...]:
        """Copies, in the dtype of ``like``, so that backward sees what forward saw."""
        copies = _snapshot([self.get_buffer(name) for name in self.names])
        return tuple(copy.to(like.dtype) for copy in copies)

    @torch.no_grad()
    def write(self, *keys: Tensor) -> None:
        """Replace the oldest entries by these keys, a tensor a buffer."""
        count = keys[0].shape[0]
        kept = min(count, self.size)
        steps = torch.arange(count - kept, count, device=self.position.device)
        slots = (self.position + steps) % self.size
        for name, key in zip(self.names, keys, strict=True):
            buffer = self.get_buffer(name)
            buffer.index_copy_(0, slots, key[count - kept :].to(buffer.dtype))
        self.position.copy_((self.position + count) % self.size)
        self.filled.copy_((self.filled + count).clamp(max=self.size))


# An operator of its own: a compiled graph drops a plain copy, and then hands backward the buffer
# that the keys have been written to meanwhile.
@torch.library.custom_op("dsf::snapshot", mutates_args=())
def _snapshot(buffers: list[Tensor]) -> list[Tensor]:
    return [buffer.clone() for buffer in buffers]


@_snapshot.register_fake
def _(buffers: list[Tensor]) -> list[Tensor]:
    return [torch.empty_like(buffer) for buffer in buffers]
