import math

import pytest

from dsf.experiments.page.numbers import duration, number, percent, points

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.01234, f"{MINUS}0.0123"),
        (-51234.4, f"{MINUS}51,234"),
        (1e-12, f"1.00e{MINUS}12"),
        (1.5e20, "1.50e+20"),
        (math.inf, "infinite"),
        (-math.inf, f"{MINUS}infinite"),
        (math.nan, "not a number"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


def test_shares():
    assert percent(1.0) == "100.0 %"
    assert points(-0.0123) == f"{MINUS}1.2"
    assert points(-0.0001) == "0.0"
    assert percent(math.nan) == points(math.nan) == duration(math.nan) == "not a number"


def test_times():
    assert duration(59.94) == "59.9 s"
    assert duration(59.97) == "1 min 0 s"
    assert duration(3599.7) == "1 h 0 min"
