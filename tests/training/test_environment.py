import shlex
import sys

import torch

from dsf.training.environment import environment


def test_the_command_can_be_copied(monkeypatch):
    words = ["train", "demo", "encoder.options={width: 4}", "data.name=folder:my photos"]
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/dsf", *words])
    command = environment(torch.device("cpu"))["command"]
    assert command.startswith("dsf train demo 'encoder.options={width: 4}' ")
    assert shlex.split(command) == ["dsf", *words]
