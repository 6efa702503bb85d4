from pathlib import Path

import headline as tool
import pytest
import tiny_plan

from dsf.experiments.paper.document import Book
from dsf.experiments.paper.outcome import Outcome
from dsf.experiments.paper.plan import load_plan

ROOT = Path(__file__).parents[2]
PLAN = load_plan("cifar10")


def test_the_readme_is_what_the_results_make():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = tool.headline(Book.read(PLAN, ROOT / "results" / "cifar10"))
    assert text == tool.replaced(text, made), "stale: run `make results`"
    assert (ROOT / tool.FIGURE).is_file()
    first = text.partition("\n## ")[0]
    assert tool.FIGURE in first  # on the first screen


def test_ours_beside_the_papers():
    name = "table1/dsf"
    text = tool.headline(Book(PLAN, {name: Outcome(tiny_plan.made_up(PLAN, name, rank=2))}))
    ours = "51.00 (90.04) | 55.00 (91.21) | 43.00 (16.20) | 8.3"
    assert f"| DSF | 250 | {ours} |" in text
    unknown = "*not run* (88.44) | *not run* (88.10) | *not run* (19.03) | *not run*"
    assert f"| MoCo | 1000 | {unknown} |" in text


def test_how_sure_it_is():
    outcomes = {
        f"seeds/{method}-s{seed}": Outcome(
            tiny_plan.made_up(PLAN, f"seeds/{method}-s{seed}", rank=rank)
        )
        for method, rank in (("feature-avg", 1), ("dsf", 2))
        for seed in range(3)
    }
    text = tool.headline(Book(PLAN, outcomes))
    # Differences of 1.0, 1.1 and 1.2: Student's t for two degrees of freedom makes 0.25 of that.
    assert "Over 3 seeds of 100 epochs DSF differs from Feature_avg by +1.10 points of kNN" in text
    assert "(95 % interval +0.85 to +1.35): DSF is ahead." in text
    del outcomes["seeds/dsf-s0"], outcomes["seeds/dsf-s1"]
    assert "interval" not in tool.headline(Book(PLAN, outcomes))


def test_an_interval_that_holds_zero_leaves_it_open():
    outcomes = {
        f"seeds/{method}-s{seed}": Outcome(
            tiny_plan.made_up(PLAN, f"seeds/{method}-s{seed}", rank=rank)
        )
        for seed in range(3)
        for method, rank in (("feature-avg", 1), ("dsf", 2 * (seed % 2)))
    }
    text = tool.headline(Book(PLAN, outcomes))
    assert text.count("): which of the two is better is open.") == 1


def test_the_marks():
    text = tool.replaced(f"a\n{tool.BEGIN}old\n{tool.END}b\n", "new")
    assert text == f"a\n{tool.BEGIN}\nnew\n\n{tool.END}b\n"
    assert tool.replaced(text, "new") == text
    with pytest.raises(ValueError, match="must have the lines"):
        tool.replaced("nothing", "new")
