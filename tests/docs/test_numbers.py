"""Numbers in prose are those of the files that it links to."""

import pytest
from blocks import ROOT

from dsf.files import read_json

RESULTS = ROOT / "results"


def says(page, text):
    return text in (ROOT / page).read_text(encoding="utf-8")


def test_logits_in_blocks():
    rows = read_json(RESULTS / "benchmarks" / "loss.json")["streaming"]
    stored, blocks, kernel = (row for row in rows if row["negatives"] == "queue")
    assert says(
        "docs/howto/memory.md",
        f"take {blocks['eager_MiB']:.0f} MiB instead of {stored['eager_MiB']:,.0f} and "
        f"{blocks['eager_times_stored']:.2f} times as long",
    )
    assert says(
        "docs/math.md",
        f"take {kernel['eager_MiB']:.0f} MiB instead of {stored['eager_MiB']:,.0f} and "
        f"{kernel['eager_times_stored']:.2f} of the time",
    )


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_knn_is_by_the_projection_as_in_the_table_beside_it(page):
    found = read_json(RESULTS / "runs" / "cifar10-dsf-60" / "results.json")
    assert says(page, f"{100 * found['knn']['projection']:.1f} % kNN")
    assert says(page, f"in {found['training']['device_seconds']:.0f} s")
