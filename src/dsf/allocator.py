"""Memory that is freed at the end of a step and needed again in the next."""

import ctypes
import os
import platform

# The numbers of mallopt's options in glibc. Each stops its thresholds from adapting to the sizes
# that are freed, so that one alone would be worse than none.
_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 1 << 30),
    "MALLOC_TRIM_THRESHOLD_": (-1, 1 << 30),
    "MALLOC_TOP_PAD_": (-2, 1 << 26),
}


def keep_freed_memory() -> None:
    """Have glibc keep up to 1 GiB of freed memory for the next tensors.

    It returns large tensors to the kernel, which must clear every page when they come back; with
    views of 224 pixels that costs more than a second core gains. Does nothing with other C
    libraries, nor where the environment has settings of its own.
    """
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if tuned or any(name in os.environ for name in _SETTINGS):
        return
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _SETTINGS.values():
            if not mallopt(option, value):
                return
