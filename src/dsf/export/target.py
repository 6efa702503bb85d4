"""What every target has: files to write, and code that loads them."""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save
from torch import Tensor

from dsf.experiments.exported import Source
from dsf.files import write_file
from dsf.models.pretrained import WEIGHTS


@dataclass(frozen=True)
class Loading:
    """One way to load what was exported.

    Args:
        library: by which.
        imports: the lines that import what the code needs.
        code: Python that leaves ``encode``, a function of (B, 3, S, S) normalised images.
        arrays: it takes and returns NumPy's arrays, and not tensors.
    """

    library: str
    imports: tuple[str, ...]
    code: str
    arrays: bool = False

    def script(self, imports: tuple[str, ...] = (), code: str = "") -> str:
        """The whole of it, and what follows."""
        lines = sorted({*self.imports, *imports}, key=lambda line: (line.split()[1], line))
        return "\n".join(lines) + f"\n\n{self.code}{code}"

    @property
    def installed(self) -> bool:
        """Whether its library is here."""
        return find_spec(self.library) is not None

    def load(self) -> Callable[[Tensor], Tensor]:
        """Run the code, and return the function of images that it leaves."""
        names: dict[str, Any] = {}
        # Our own text, into which nothing of the run comes but literals.
        with redirect_stderr(io.StringIO()):  # a library may show its progress there
            exec(self.script(), names)

        @torch.no_grad()
        def encode(images: Tensor) -> Tensor:
            return torch.as_tensor(names["encode"](images.numpy() if self.arrays else images))

        return encode


class Target(ABC):
    """A library that can load the encoder.

    Attributes:
        name: as the command line spells it.
        library: as the Hub spells it.
    """

    name: ClassVar[str]
    library: ClassVar[str]

    @abstractmethod
    def write(self, source: Source, folder: Path) -> None:
        """Write what the library loads; ``ValueError`` if it has no such encoder."""

    @abstractmethod
    def loadings(self, source: Source, folder: str) -> list[Loading]:
        """The ways to load it from a folder, the target's own first."""

    def note(self, source: Source) -> str:
        """What else to say about loading."""
        return ""


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors."""
    plain = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
    write_file(path / WEIGHTS, save(plain, metadata={"format": "pt"}))


def arguments(options: Mapping[str, Any]) -> str:
    """Options as they stand in a call, each after a comma."""
    return "".join(f", {name}={literal(value)}" for name, value in options.items())


def literal(value: Any) -> str:
    """A value as code, with the quotation marks that everybody uses."""
    text = repr(value)
    return text if '"' in text or "\\" in text else text.replace("'", '"')


def cifar_stem(width: int) -> str:
    """Code that gives a ResNet the stem for small images."""
    return (
        f"encode.conv1 = torch.nn.Conv2d(3, {width}, kernel_size=3, padding=1, bias=False)\n"
        "encode.maxpool = torch.nn.Identity()\n"
    )
