import os
import platform
import subprocess
import sys

import pytest

from dsf import allocator

# Page faults while 128 MiB are allocated, written and freed for the third time.
FAULTS = """
import resource
import numpy as np
from dsf.allocator import keep_freed_memory
keep_freed_memory()
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.full(1 << 18, 1.0) for _ in range(64)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**settings):
    kept = {name: x for name, x in os.environ.items() if name not in allocator._SETTINGS}
    command = [sys.executable, "-c", FAULTS]
    run = subprocess.run(command, env=kept | settings, capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
@pytest.mark.parametrize(
    "own", [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.top_pad=4096"}]
)
def test_freed_memory_stays_unless_the_user_has_settings(own):
    assert faults() < faults(**own) / 8


def test_other_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(allocator.ctypes, "CDLL", None)
    allocator.keep_freed_memory()
