"""Numbers in prose are those of the files that it links to."""

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
