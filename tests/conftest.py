import os
import shutil

import pytest
import torch


def pytest_collection_modifyitems(config, items):
    # Whoever asks for them by `-m gpu` is told that no GPU is seen, not that all is well.
    skipped = "gpu" not in config.option.markexpr and not torch.cuda.is_available()
    for item in items:
        if "compiler" in getattr(item, "fixturenames", ()):
            item.add_marker("compiles")
        if skipped and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def compiler():
    """Fresh state for torch.compile; skips where Inductor finds no C++ compiler."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++")):
        reason = "no C++ compiler: torch.compile cannot be tested"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
