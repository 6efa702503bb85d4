"""Read the pickles that CIFAR comes in without running what a pickle may ask for.

The only names a file may mention are those of NumPy arrays, and none of NumPy's own unpickling
runs: the names stand for the classes below, which take a shape, a type and bytes.
"""

import io
import math
import pickle
from typing import Any

import numpy as np

_TYPES = {"u1": np.uint8, "i4": np.int32, "i8": np.int64}


def load(data: bytes, where: str) -> dict[str, Any]:
    """A pickled dictionary of arrays, bytes, numbers and containers, its keys as text."""
    try:
        value = _finish(_Unpickler(io.BytesIO(data), encoding="bytes").load())
    except pickle.UnpicklingError as error:
        raise ValueError(f"{where}: {error}") from None
    except Exception as error:  # a damaged pickle fails in as many ways as pickle has instructions
        raise ValueError(f"{where} is not a readable pickle: {error!r}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{where} must hold a dictionary; got {type(value).__name__}")
    return {key.decode() if isinstance(key, bytes) else str(key): v for key, v in value.items()}


class _Dtype:
    def __init__(self, name: bytes | str, *_: Any) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        if self.name not in _TYPES:
            raise pickle.UnpicklingError(
                f"arrays must be of type {tuple(_TYPES)}; got {self.name!r}"
            )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in (b">", ">"):
            raise pickle.UnpicklingError("arrays must be little-endian")


class _Array:
    def __init__(self, *_: Any) -> None:
        self.array: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if isinstance(data, str):
            data = data.encode("latin-1")
        kind = np.dtype(_TYPES[dtype.name]).newbyteorder("<")
        if math.prod(shape) * kind.itemsize != len(data):
            raise pickle.UnpicklingError(f"an array of shape {shape} has {len(data)} bytes")
        self.array = np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")


class _ArrayType:
    """Stands where a file names the class of arrays; never made."""


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":  # how Python 3 spells bytes in old protocols
        raise pickle.UnpicklingError(f"bytes must be in latin1; got {encoding!r}")
    return text.encode("latin-1")


_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(
                f"only arrays, bytes and containers are admitted; the file asks for {module}.{name}"
            )
        return _NAMES[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("persistent objects are not admitted")


def _finish(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.array
    if isinstance(value, dict):
        return {key: _finish(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finish(item) for item in value]
    if isinstance(value, _Dtype | type):
        raise pickle.UnpicklingError(f"a value may not be {value!r}")
    return value
