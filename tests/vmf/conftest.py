import json
from collections import defaultdict
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reference():
    """High-precision records by function name."""
    path = Path(__file__).parents[1] / "data" / "reference_values.json"
    records = defaultdict(list)
    for record in json.loads(path.read_text())["records"]:
        records[record["fn"]].append(record)
    return records
