import os
import shutil

import pytest
import torch


def pytest_collection_modifyitems(items):
    for item in items:
        if "compiler" in getattr(item, "fixturenames", ()):
            item.add_marker("compiles")


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
