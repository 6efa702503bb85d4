import math

import pytest

from dsf.training import Schedule


def test_cosine_falls_to_the_final_part():
    schedule = Schedule(2.0, steps=100, steps_per_epoch=10, final=0.1)
    rates = [schedule(step) for step in range(100)]
    assert rates[0] == 2.0
    assert rates == sorted(rates, reverse=True)
    assert schedule(50) == pytest.approx(2.0 * 0.55)
    assert schedule(100) == pytest.approx(0.2)


def test_warm_up_by_step():
    schedule = Schedule(1.0, steps=40, steps_per_epoch=10, warmup=8)
    assert [schedule(step) for step in range(8)] == [(step + 1) / 8 for step in range(8)]
    assert schedule(8) == 1.0
    assert schedule(24) == pytest.approx((1 + math.cos(math.pi / 2)) / 2)


def test_by_epoch_only_an_epoch_changes_it():
    schedule = Schedule(1.0, steps=50, steps_per_epoch=10, warmup=20, per="epoch")
    rates = [schedule(step) for step in range(50)]
    assert all(len(set(rates[start : start + 10])) == 1 for start in range(0, 50, 10))
    assert rates[0] == 0.5
    assert rates[10] == rates[20] == 1.0
    assert rates[30] == pytest.approx((1 + math.cos(math.pi / 3)) / 2)


def test_constant_after_the_warm_up():
    schedule = Schedule(0.3, steps=50, steps_per_epoch=10, warmup=2, name="constant")
    assert [schedule(step) for step in (0, 1, 2, 49)] == [0.15, 0.3, 0.3, 0.3]


def test_warm_up_as_long_as_the_training():
    schedule = Schedule(1.0, steps=10, steps_per_epoch=10, warmup=10)
    assert schedule(9) == 1.0
