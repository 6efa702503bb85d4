"""Triton's interpreter, for kernels on a CPU."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np


def interpret(file):
    """Run a file as a script in a process of its own, whose Triton interprets."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.run(
        [sys.executable, file], env=environment, capture_output=True, text=True, timeout=300
    )


def correct_bfloat16():
    """Make bfloat16 what it is on a GPU: Triton's own would multiply bits, and cut, not round."""
    from triton.language import bfloat16, float32
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast = builder.cast_impl

    def dot(_, a, b, result, *options):
        a, b = ((x.data.astype(np.uint32) << 16).view(np.float32) for x in (a, b))
        return handle(a @ b + result.data, result.dtype.scalar)

    def cast_to_nearest(self, source, kind):
        if source.dtype.scalar != float32 or kind.scalar != bfloat16:
            return cast(self, source, kind)
        bits = source.data.view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return handle(bits.astype(np.uint16), bfloat16)

    builder.create_dot, builder.cast_impl = dot, cast_to_nearest
