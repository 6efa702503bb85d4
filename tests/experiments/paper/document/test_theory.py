import math

import pytest
from scipy import stats

from dsf.experiments.paper.document import theory
from dsf.experiments.paper.document.statistics import _QUANTILES, noise, paired_interval


@pytest.mark.parametrize(
    ("tau", "negatives", "expected"),
    [
        (1.0, 256, 3.57363),
        (1.0, 4096, 6.31957),
        (0.5, 65536, 7.09119),
        (0.2, 4096, 0.170551),
        (0.1, 65536, 1.351e-4),
    ],
)
def test_infonce(tau, negatives, expected):
    assert theory.infonce_at_best(tau, negatives) == pytest.approx(expected, rel=3e-4)


def test_where_the_paper_s_table_differs():
    text = theory.infonce(None)
    assert text.count("paper: ") == 4
    for mark in ("3.574 (paper: 3.573)", "6.320 (paper: 6.319)", "0.012 (paper: 0.011)"):
        assert mark in text


@pytest.mark.parametrize(("tau", "kappa"), [(0.1, 37.13), (0.2, 25.78), (0.07, 45.06)])
def test_theorem(tau, kappa):
    star = theory._star(tau, 128)
    assert star == pytest.approx(kappa, abs=0.005)
    assert theory._equal(star, tau, 128)
    assert not theory._equal(star * 1.01, tau, 128)


@pytest.mark.parametrize(("shrink", "tau"), [(0.9, 0.236), (0.95, 0.1088), (0.97, 0.063)])
def test_lambda_is_the_temperature(shrink, tau):
    assert 1 / (shrink * theory._limit(shrink, 128)) == pytest.approx(tau, abs=5e-4)


def test_quantiles():
    assert [round(float(stats.t.ppf(0.975, n)), 4) for n in range(1, 11)] == list(_QUANTILES)


def test_paired_intervals():
    one, other = [3.0, 5.0, 4.5, 4.0], [1.0, 2.0, 3.0, 4.0]
    interval = paired_interval(one, other)
    expected = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert interval[1:] == pytest.approx((expected.low, expected.high), rel=1e-4)
    assert paired_interval([1, 2], [0, 1]) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="there must be 2 to 11 pairs; got 1"):
        paired_interval([1.0], [2.0])


def test_noise():
    assert noise(50, 10_000) == pytest.approx(196 * math.sqrt(0.5 / 10_000))
    assert noise(100, 10) == 0.0
