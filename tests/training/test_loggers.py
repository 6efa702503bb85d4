import sys
import types

import pytest

from dsf.training.loggers import TensorBoard, WeightsAndBiases

LINES = [
    {"kind": "step", "step": 4, "epoch": 0.5, "loss": 2.5},
    {"kind": "warning", "step": 6, "epoch": 1, "text": "it collapsed"},
    {"kind": "knn", "step": 6, "epoch": 1, "backbone": 0.4},
]


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoard(tmp_path / "tensorboard", step=0)
    for line in LINES:
        logger.line(line)
    logger.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert {"step/loss", "knn/backbone"} <= set(events.Tags()["scalars"])
    (scalar,) = events.Scalars("step/loss")
    assert (scalar.step, scalar.value) == (4, 2.5)


def test_weights_and_biases(tmp_path, monkeypatch):
    """Without the package and the internet: what would be sent."""
    sent = []

    class Run:
        def log(self, values, step):
            sent.append((step, values))

        def finish(self):
            sent.append("finished")

    def init(**options):
        sent.append(options)
        return Run()

    module = types.ModuleType("wandb")
    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    logger = WeightsAndBiases("project", tmp_path / "name", {"seed": 1})
    for line in LINES:
        logger.line(line)
    logger.close()
    assert sent[0]["project"] == "project"
    assert (sent[0]["name"], sent[0]["resume"]) == ("name", "allow")
    assert sent[1] == (4, {"step/epoch": 0.5, "step/loss": 2.5})
    assert sent[-2:] == [(6, {"knn/epoch": 1, "knn/backbone": 0.4}), "finished"]


def test_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"wandb=x needs the package wandb, .* 'dsf-ssl\[wandb\]'"):
        WeightsAndBiases("x", tmp_path, {})
