import pytest
import torch

from dsf.training import votes
from dsf.training.votes import Votes


@pytest.mark.parametrize(
    ("seconds", "first", "gap"),
    [
        (0.01, [1, 3, 7, 15, 31, 63, 127, 255, 511], 500),
        (1.0, [1, 3, 7, 12, 17], 5),
        (40.0, [1, 2, 3], 1),
    ],
)
def test_seldom_but_every_few_seconds(monkeypatch, seconds, first, gap):
    now = 0.0
    monkeypatch.setattr(votes.time, "perf_counter", lambda: now)
    asked, voting = [], Votes(100, torch.device("cpu"))
    for step in range(101, 3000):
        now += seconds
        if voting.due(step):
            assert voting.vote(step, False, True) == [False, True]
            asked.append(step - 100)
    assert asked[: len(first)] == first
    assert asked[-1] - asked[-2] == pytest.approx(gap, abs=1)


def test_a_first_step_that_compiles(monkeypatch):
    now = 0.0
    monkeypatch.setattr(votes.time, "perf_counter", lambda: now)
    asked, voting = [], Votes(0, torch.device("cpu"))
    for step in range(1, 40):
        now += 60 if step == 1 else 1
        if voting.due(step):
            voting.vote(step)
            asked.append(step)
    assert asked[:7] == [1, 2, 4, 8, 13, 18, 23]
