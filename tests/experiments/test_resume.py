"""Runs that go on where something is different: memory, processes, settings that change nothing."""

import pytest
import tiny
import torch
import yaml

from dsf import distributed
from dsf.experiments import build, load_recipe, train
from dsf.experiments.run import LOCK
from dsf.experiments.subjects import run_settings
from dsf.files import alone
from dsf.training import Interrupted


class StoppedError(Exception):
    """Far enough."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tiny.settings(), tmp_path_factory.mktemp("runs") / "whole", show=False)


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run that was stopped after 9 steps of 12, where there was room for its images."""
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 9)
        with pytest.raises(Interrupted):
            train(tiny.settings(), tmp_path / "run", show=False)
    return tmp_path / "run"


def test_with_less_memory(stopped, whole, monkeypatch):
    assert load_recipe(str(stopped / "config.yaml")).data.resident is True
    monkeypatch.setattr(build, "room", lambda device: 1000)
    train(tiny.settings(), stopped, resume=True, show=False)
    assert tiny.same(whole, stopped)


def test_evaluations_look_for_room_themselves(whole, monkeypatch):
    assert run_settings(whole, "cpu").data.resident == "auto"
    config = whole.parent / "streamed"
    config.mkdir()
    content = yaml.safe_load((whole / "config.yaml").read_text())
    content["data"]["resident"] = False
    (config / "config.yaml").write_text(yaml.safe_dump(content))
    assert run_settings(config, "cpu").data.resident is False


def test_by_several_processes_which_record_no_graph(stopped, monkeypatch):
    def far_enough(device):
        raise StoppedError

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(distributed, "start", far_enough)
    monkeypatch.setenv("WORLD_SIZE", "2")
    settings = tiny.settings("device=cuda", "graph=true", "data.resident=true")
    with pytest.raises(ValueError, match="a CUDA graph needs a GPU and one process"):
        train(settings, stopped, show=False)
    with pytest.raises(StoppedError):
        train(settings, stopped, resume=True, show=False)


def test_with_or_without_a_graph(stopped, whole):
    content = yaml.safe_load((stopped / "config.yaml").read_text())
    (stopped / "config.yaml").write_text(yaml.safe_dump({**content, "graph": True}))
    train(tiny.settings(), stopped, resume=True, show=False)
    assert tiny.same(whole, stopped)


def test_damaged_results_are_met_before_the_work(stopped):
    (stopped / "results.json").write_text('{"training": ')
    before = tiny.lines(stopped)
    with pytest.raises(ValueError, match=r"results.json is not JSON"):
        train(tiny.settings(), stopped, resume=True, show=False)
    assert tiny.lines(stopped) == before


def test_one_process_at_a_time(stopped, whole, tmp_path):
    """A second one dropped the metrics of the first, and either could end with none."""
    before = tiny.lines(stopped)
    new = tmp_path / "new"
    new.mkdir()
    for folder, resume in ((stopped, True), (new, False)):
        message = f"another process is training in {folder}; wait for it"
        with alone(folder / LOCK), pytest.raises(BlockingIOError, match=message):
            train(tiny.settings(), folder, resume=resume, show=False)
    assert tiny.lines(stopped) == before
    assert not (new / "config.yaml").exists()
    for folder, resume in ((stopped, True), (new, False)):
        assert tiny.same(train(tiny.settings(), folder, resume=resume, show=False), whole)
