"""The paper's second half: its tables with complete, partial and absent results."""

import pytest
import tiny_plan

from dsf.experiments.paper.document import Book
from dsf.experiments.paper.document.build import chapter
from dsf.experiments.paper.outcome import Outcome
from dsf.experiments.paper.plan import load_plan

HUNDRED, IMAGENETTE = load_plan("imagenet100"), load_plan("imagenette")
RANKS = {"mocov3": 0, "loss-avg": 1, "feature-avg": 2, "dsf": 4}
MINUS, NOTHING = "\N{MINUS SIGN}", "\N{EN DASH}"


def book(plan, names=None, **ranks):
    ranks = RANKS | {key.replace("_", "-"): value for key, value in ranks.items()}
    outcomes = {
        name: Outcome(tiny_plan.made_up(plan, name, ranks[plan.every[name].method]))
        for name in (plan.every if names is None else plan.select(names))
    }
    return Book(plan, outcomes)


def lines(text, heading):
    """The cells of all rows of the section's tables, without their headers."""
    part = text.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows][1:]


def status(text, claim):
    (found,) = [row for row in lines(text, "What held") if row[0] == claim]
    return found[2].strip("*")


def test_table_1():
    mocov3, *_, dsf = lines(chapter(book(HUNDRED)), "Table 1: equal resources")
    assert mocov3[:5] == ["MoCo v3", "300", "74.08", "49.00", f"{MINUS}25.08"]
    assert dsf[:5] == ["DSF", "100", "79.00", "53.00", f"{MINUS}26.00"]
    assert dsf[5:8] == ["85.80", "57.00", f"{MINUS}28.80"]
    assert dsf[8:11] == ["33.15", "36.00", "+2.85"]


def test_table_2_has_the_paper_beside_ours():
    table = lines(chapter(book(HUNDRED)), "Table 2: transfer")
    assert [row[0] for row in table[::3]] == ["MoCo v3", "Loss_avg", "Feature_avg", "DSF"]
    paper, ours, difference = table[-3:]
    assert paper[1:] == [
        *["paper", "97.11", "81.76", "84.17", "49.49", "60.59"],
        NOTHING,
        "74.62",
        NOTHING,
    ]
    # Of pets and aircraft the mean over classes; the average leaves out what the paper has not.
    mean = (3 * 84 + 2 * 74) / 5
    assert ours[1:] == [
        *["ours", "84.00", "84.00", "74.00", "74.00", "84.00", "84.00"],
        f"{mean:.2f}",
        "180",
    ]
    assert difference[1:4] == ["difference", f"{MINUS}13.11", "+2.24"]
    assert difference[7:] == [NOTHING, f"+{mean - 74.624:.2f}", NOTHING]


def test_a_partial_table_2():
    some = [f"table2/dsf/{data}" for data in ("pets", "dtd")]
    text = chapter(book(HUNDRED, ["table1", *some, "table2/mocov3"]))
    assert "**Partial: 8 of 24 runs are done.**" in text
    table = lines(text, "Table 2: transfer")
    assert table[-2][2:] == [
        *("*not run*", "*not run*", "74.00", "*not run*", "84.00", "*not run*"),
        *(NOTHING, "60"),
    ]
    assert table[-1][4] == f"{MINUS}10.17"
    assert table[1][8] != NOTHING  # MoCo v3's is whole
    assert status(text, "DSF transfers best to pets") == "not run"


def test_fine_tuning_that_failed():
    found = book(HUNDRED)
    name = "table2/dsf/pets"
    found.outcomes[name] = Outcome(tiny_plan.made_up(HUNDRED, name, failure="table1/dsf failed"))
    table = lines(chapter(found), "Table 2: transfer")
    assert table[-2][4] == "*failed*"
    assert table[-2][8] == NOTHING


@pytest.mark.parametrize(
    ("rank", "expected"), [(4, "held"), (0, "did not hold"), (2.1, "undecided")]
)
def test_transfer_as_a_claim(rank, expected):
    text = chapter(book(HUNDRED, dsf=rank))
    assert status(text, "DSF transfers best to pets") == expected
    assert "transfers best to food101" not in text  # of which the paper says nothing


def test_the_margin_figure():
    found = book(HUNDRED, ["table1"])
    text = chapter(found)
    assert "Of `table1/dsf`" in text
    assert "This is the run of the paper's figure" in text
    assert "| the paper says | found |" in text
    assert {"margin.svg", "margins.svg", "kappa-training.svg"} <= set(found.figures.files)
    alone = book(HUNDRED, ["margin"])
    chapter(alone)
    assert "margin.svg" in alone.figures.files
    assert "margins.svg" not in alone.figures.files  # nothing to compare with
    absent = book(HUNDRED, [])
    assert "## Margin and concentration over training\n\n**Not run yet.**" in chapter(absent)


def test_imagenette():
    text = chapter(book(IMAGENETTE))
    equal = lines(text, "Equal views")
    assert [row[:2] for row in equal] == [
        ["MoCo v3", "400"],
        ["Loss_avg", "100"],
        ["Feature_avg", "100"],
        ["DSF", "100"],
    ]
    # kNN, that of the backbone, linear, its fast form, mCE, then what it took.
    assert equal[-1][2:] == [
        *("53.00", "54.00", "57.00", "56.00", "36.00", "41.00"),
        *("80.0", "200", "3.0"),
    ]
    mocov3, dsf = lines(text, "224 pixels, 200 epochs")
    assert mocov3[2:8] == ["82.60", "50.00", f"{MINUS}32.60", "84.70", "53.00", f"{MINUS}31.70"]
    assert dsf[2:5] == [NOTHING, "54.00", NOTHING]
    transfer = lines(text, "Transfer from Imagenette")
    assert transfer[-1] == ["DSF", "74.00", "74.00", "84.00", "77.33", "90"]
    assert status(text, "DSF is the best of 4 methods in kNN") == "held"
    assert status(text, "DSF transfers best to caltech101") == "held"
    assert "| the paper says of other data | found |" in text


def test_partial_imagenette():
    text = chapter(book(IMAGENETTE, ["tuning", "table1/dsf"]))
    assert "**Partial: 1 of 4 runs are done.**" in text
    assert lines(text, "Equal views")[0][2] == "*not run*"
    assert lines(text, "224 pixels, 200 epochs")[0][2:5] == ["82.60", "*not run*", NOTHING]
    assert "**Not run yet.**" in text.partition("## Transfer")[2].partition("\n## ")[0]
    assert status(text, "DSF is the best of 4 methods in kNN") == "not run"
