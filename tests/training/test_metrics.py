import json

import pytest
import torch

from dsf import distributed
from dsf.training import MetricsFile, read_metrics
from dsf.training.metrics import Meter, add_states, means


def test_means_over_what_was_added():
    meter = Meter("cpu")
    for value in (1.0, 2.0, 6.0):
        meter.add(loss=torch.tensor(value))
    meter.add(loss=torch.tensor(3.0), margin=torch.tensor(0.5))
    state = meter.fetch()
    assert means(state) == {"loss": 3.0, "margin": 0.5}
    assert meter.fetch() == {}
    assert means(add_states(state, {"loss": [8.0, 1]})) == {"loss": 4.0, "margin": 0.5}


def test_a_state_goes_on_to_the_bit():
    values = torch.rand(10).double() / 3
    whole, first, second = Meter("cpu"), Meter("cpu"), Meter("cpu")
    for value in values:
        whole.add(loss=value)
    for value in values[:4]:
        first.add(loss=value)
    second.load(json.loads(json.dumps(first.state())))
    for value in values[4:]:
        second.add(loss=value)
    assert second.fetch() == whole.fetch()


def test_the_first_bad_step():
    meter = Meter("cpu")
    for step, loss in enumerate([1.0, torch.inf, 2.0, torch.nan]):
        assert meter.first_bad_step() == (None if step < 2 else 1)
        meter.watch(torch.tensor(loss), step)


def test_extremes_are_those_of_all_processes(monkeypatch):
    others = torch.tensor([[4.0, 2.0, 9.0]], dtype=torch.float64)
    monkeypatch.setattr(distributed, "gather", lambda mine: torch.cat([mine, others]))
    meter = Meter("cpu")
    mean, smallest, largest = torch.tensor([3.0, 1.0, 5.0])
    meter.add(kappa_mean=mean, kappa_min=smallest, kappa_max=largest)
    assert means(meter.fetch()) == {"kappa_mean": 3.5, "kappa_min": 1.0, "kappa_max": 9.0}


def test_later_lines_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, 0)
    for step in range(1, 6):
        file.write({"kind": "step", "step": step})
    file.close()
    path.write_text(path.read_text() + '{"kind": "st')  # a kill in the middle of a line
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3, 4, 5]
    file = MetricsFile(path, 3)
    file.write({"kind": "step", "step": 4, "again": True})
    file.close()
    lines = read_metrics(path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["again"]
    MetricsFile(path, 0).close()
    assert read_metrics(path) == []


def test_lines_are_there_at_once(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl", 0)
    file.write({"kind": "step", "step": 1})
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1
    file.close()
    assert read_metrics(tmp_path / "none.jsonl") == []


def test_no_folder(tmp_path):
    with pytest.raises(OSError, match="cannot write"):
        MetricsFile(tmp_path / "none" / "metrics.jsonl", 0)
