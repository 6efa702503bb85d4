import dataclasses

import pytest

from dsf.data import registry
from dsf.data.sets import SETS


@pytest.fixture
def any_count(root, monkeypatch):
    """The data sets without the numbers of images that only the real ones have."""
    for data_set in SETS:
        small = dataclasses.replace(data_set, splits={})
        monkeypatch.setitem(registry.DATASETS, data_set.name, small)
