"""For ONNX: a graph with a batch of any size."""

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from dsf.experiments.exported import Source
from dsf.export.target import Loading, Target, literal

MODEL = "model.onnx"
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


class ONNX(Target):
    """One file with the graph and its weights."""

    name, library = "onnx", "onnx"

    def write(self, source: Source, folder: Path) -> None:
        """Trace the encoder."""
        for package in _PACKAGES:
            try:
                importlib.import_module(package)
            except ImportError as error:
                raise ValueError(
                    f"to: onnx needs the package {package}, which is not installed ({error}): "
                    "pip install 'dsf-ssl[onnx]'"
                ) from None
        side = source.image_size
        # Two images, since torch takes a dimension of one for a constant.
        images = torch.zeros(2, 3, side, side)
        with _quiet():
            torch.onnx.export(
                source.encoder,
                (images,),
                folder / MODEL,
                input_names=["images"],
                output_names=["features"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )

    def loadings(self, source: Source, folder: str) -> list[Loading]:
        """With ONNX Runtime."""
        path = literal(str(Path(folder) / MODEL))
        code = (
            f"session = onnxruntime.InferenceSession({path})\n\n\n"
            "def encode(images):\n"
            '    return session.run(["features"], {"images": images})[0]\n\n'
        )
        return [Loading("onnxruntime", ("import onnxruntime",), code, arrays=True)]

    def note(self, source: Source) -> str:
        """The shapes."""
        side = source.image_size
        return (
            f"`images` is (batch, 3, {side}, {side}), `features` (batch, {source.features}), both "
            "float32; the batch may have any size."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells every step of its work, and warns of what is its own affair."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
