import json
import shutil

import pytest
import torch
from torch import nn

from dsf.training import Checkpoints
from dsf.training.checkpoints import (
    load_module,
    load_optimiser,
    module_tensors,
    optimiser_tensors,
    random_state,
    read,
    set_random_state,
)


def network(width=4):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width))


@pytest.fixture
def checkpoints(tmp_path):
    made = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (5, 10):
        made.save(step, module_tensors(network()), {"note": step})
    return made


def test_saved_and_read(tmp_path):
    module = network().to(memory_format=torch.channels_last)
    checkpoints = Checkpoints(tmp_path / "deep" / "checkpoints")
    path = checkpoints.save(3, module_tensors(module), {"note": [1.5, None]})
    assert path.name == "step-00000003"
    assert sorted(file.name for file in path.iterdir()) == ["state.json", "tensors.safetensors"]
    loaded, passed_over = checkpoints.newest()
    assert (loaded.path, loaded.state["step"], loaded.state["note"]) == (path, 3, [1.5, None])
    assert passed_over == []
    other = network().to(memory_format=torch.channels_last)
    load_module(other, loaded)
    assert other[0].weight.is_contiguous(memory_format=torch.channels_last)
    for one, two in zip(module.state_dict().values(), other.state_dict().values()):
        assert one.equal(two)


def test_the_last_are_kept(checkpoints):
    for step in (15, 20, 100):
        checkpoints.save(step, {}, {})
    assert [path.name for path in checkpoints.paths()] == ["step-00000020", "step-00000100"]
    assert len(list(checkpoints.folder.iterdir())) == 2


def test_none_yet(tmp_path):
    assert Checkpoints(tmp_path / "none").newest() == (None, [])


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_truncated(checkpoints, size):
    file = checkpoints.paths()[-1] / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    loaded, passed_over = checkpoints.newest()
    assert loaded.state["step"] == 5
    assert len(passed_over) == 1
    assert passed_over[0].startswith(f"{file} is damaged: it has ")


def test_tampered_tensors(checkpoints):
    file = checkpoints.paths()[-1] / "tensors.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="tensors.safetensors is damaged: its checksum"):
        read(file.parent)


def test_tampered_state(checkpoints):
    file = checkpoints.paths()[-1] / "state.json"
    file.write_text(file.read_text().replace('"note": 10', '"note": 11'))
    with pytest.raises(ValueError, match="state.json is damaged: its checksum"):
        read(file.parent)


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors"])
def test_a_file_is_missing(checkpoints, name):
    path = checkpoints.paths()[-1]
    (path / name).unlink()
    with pytest.raises(ValueError, match=f"is not a whole checkpoint: it has no {name}"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is not JSON"), ("[]", "must hold"), ("{}", "format must be 1")]
)
def test_no_state(checkpoints, content, message):
    path = checkpoints.paths()[-1]
    (path / "state.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read(path)
    assert checkpoints.newest()[0].state["step"] == 5


def test_all_are_broken(checkpoints):
    for path in checkpoints.paths():
        (path / "state.json").unlink()
    loaded, passed_over = checkpoints.newest()
    assert loaded is None
    assert len(passed_over) == 2


def test_a_damaged_one_is_replaced(checkpoints):
    (checkpoints.paths()[-1] / "state.json").unlink()
    checkpoints.save(10, {}, {"note": "again"})
    assert checkpoints.newest()[0].state["note"] == "again"


@pytest.mark.parametrize("keep", [1, 2])
def test_damaged_ones_of_later_steps_push_none_out(checkpoints, keep):
    for path in checkpoints.paths():
        (path / "state.json").unlink()
    checkpoints.keep = keep
    saved = [checkpoints.save(step, {}, {}) for step in (2, 3, 4)]
    assert checkpoints.newest()[0].path == saved[-1]
    assert [path for path in saved if path.exists()] == saved[-keep:]
    checkpoints.save(100, {}, {})
    assert len(checkpoints.paths()) == keep


def test_leftovers_of_a_kill_are_no_checkpoints(checkpoints):
    half = checkpoints.folder / "step-00000099.tmp"
    shutil.copytree(checkpoints.paths()[0], half)
    assert checkpoints.newest()[0].state["step"] == 10
    checkpoints.save(11, {}, {})
    assert not half.exists()


def test_another_architecture(checkpoints):
    loaded, _ = checkpoints.newest()
    message = (
        r"step-00000010 is of another architecture: 0.weight has the shape \(4, 3, 3, 3\), "
        r"the settings' model has \(8, 3, 3, 3\)"
    )
    with pytest.raises(ValueError, match=message):
        load_module(network(8), loaded)
    with pytest.raises(ValueError, match="it lacks 2.weight"):
        load_module(nn.Sequential(*network(), nn.Conv2d(4, 4, 1, bias=False)), loaded)
    with pytest.raises(ValueError, match="beyond the settings' model, 1.bias"):
        load_module(nn.Sequential(network()[0]), loaded)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_the_optimiser_goes_on_to_the_bit(tmp_path, kind):
    def step(module, optimiser, images):
        optimiser.zero_grad()
        module(images).square().mean().backward()
        optimiser.step()

    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    images = torch.randn(6, 4, 3, 8, 8)
    module = network().to(memory_format=torch.channels_last)
    module[0].bias.requires_grad_(False)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimiser = kind(trained, lr=0.1, **options)
    for batch in images[:3]:
        step(module, optimiser, batch)
    tensors = module_tensors(module) | optimiser_tensors(optimiser, module)
    Checkpoints(tmp_path).save(3, tensors, {})
    again = network().to(memory_format=torch.channels_last)
    again[0].bias.requires_grad_(False)
    trained = [parameter for parameter in again.parameters() if parameter.requires_grad]
    resumed = kind(trained, lr=0.1, **options)
    loaded, _ = Checkpoints(tmp_path).newest()
    load_module(again, loaded)
    load_optimiser(resumed, again, loaded)
    for batch in images[3:]:
        step(module, optimiser, batch)
        step(again, resumed, batch)
    for one, two in zip(module.state_dict().values(), again.state_dict().values()):
        assert one.equal(two)


def test_nothing_is_pickled(checkpoints):
    for path in checkpoints.folder.rglob("*.*"):
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.is_file():
            assert path.read_bytes()[8:9] == b"{"  # safetensors: a length, then JSON


def test_random_states_of_several_processes():
    device = torch.device("cpu")
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(random_state(device))
    both = torch.stack(states)
    for seed, row in zip((1, 2), both):
        set_random_state(row, device)
        drawn = torch.rand(3)
        torch.manual_seed(seed)
        assert drawn.equal(torch.rand(3))
