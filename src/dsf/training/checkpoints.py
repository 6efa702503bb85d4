"""Checkpoints: folders that are whole or absent, of tensors and JSON, with checksums.

```
checkpoints/step-00000120/
  tensors.safetensors   every tensor, by name
  state.json            the rest; its own sha256 and that of the tensors
```
"""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from dsf import files

FORMAT = 1
_TENSORS = "tensors.safetensors"
STATE = "state.json"
_NAME = re.compile(r"step-(\d{8,})")


class Loaded(NamedTuple):
    """A checkpoint that was read and found whole."""

    path: Path
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: theirs; made when the first is saved.
        keep: how many to keep, the newest.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def paths(self) -> list[Path]:
        """The checkpoints by their step, the newest last."""
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, key=_step)

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> Path:
        """Write a checkpoint aside, force it to the disk, give it its name, drop the oldest."""
        path = self.folder / f"step-{step:08d}"
        aside = path.with_name(path.name + files.TEMPORARY)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        aside.mkdir()
        try:
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            data = save(plain)
            digest = files.write_file(aside / _TENSORS, data)
            state = state | {"format": FORMAT, "step": step}
            state |= {"tensors": {"sha256": digest, "bytes": len(data)}}
            files.write_json(aside / STATE, state | {"sha256": _digest(state)})
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            last, _ = self.newest()
            kept = f"{last.path} is kept: make room and resume" if last else "there is none yet"
            raise OSError(error.errno, f"{error.strerror}. Of checkpoints {kept}") from error
        if path.exists():  # a damaged one of the same step
            self._discard(path)
        os.replace(aside, path)
        files.sync_folder(self.folder)
        # Later ones are damaged: a run that resumed has passed over them.
        for old in [other for other in self.paths() if _step(other) <= step][: -self.keep]:
            self._discard(old)
        return path

    def newest(self) -> tuple[Loaded | None, list[str]]:
        """The newest whole checkpoint, if any, and what was wrong with those after it."""
        passed_over: list[str] = []
        for path in reversed(self.paths()):
            try:
                return read(path), passed_over
            except (OSError, ValueError) as error:
                passed_over.append(str(error))
        return None, passed_over

    def _remove_leftovers(self) -> None:
        for path in self.folder.glob(f"step-*{files.TEMPORARY}"):
            shutil.rmtree(path)

    def _discard(self, path: Path) -> None:
        # Under another name first: a kill must not leave half a checkpoint that looks like one.
        aside = path.with_name(f"{path.name}.old{files.TEMPORARY}")
        os.replace(path, aside)
        shutil.rmtree(aside)


def read(path: Path) -> Loaded:
    """Read a checkpoint and compare its checksums."""
    for name in (STATE, _TENSORS):
        if not (path / name).is_file():
            raise ValueError(f"{path} is not a whole checkpoint: it has no {name}")
    state = files.read_json(path / STATE)
    expected = state.pop("sha256", None)
    if state.get("format") != FORMAT:
        raise ValueError(
            f"{path / STATE}: format must be {FORMAT}; got {state.get('format')!r}. "
            "Use the version of dsf that wrote it"
        )
    if expected != _digest(state):
        raise ValueError(f"{path / STATE} is damaged: its checksum does not match its content")
    data = (path / _TENSORS).read_bytes()
    of_tensors = state["tensors"]
    if len(data) != of_tensors["bytes"]:
        raise ValueError(
            f"{path / _TENSORS} is damaged: it has {len(data):,} bytes, "
            f"{STATE} says {of_tensors['bytes']:,}"
        )
    if hashlib.sha256(data).hexdigest() != of_tensors["sha256"]:
        raise ValueError(f"{path / _TENSORS} is damaged: its checksum is not that of {STATE}")
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise ValueError(f"{path / _TENSORS} is not a safetensors file: {error}") from None
    return Loaded(path, tensors, state)


def checksum(path: Path) -> str:
    """That of a checkpoint's tensors, by which results name the weights that they are of."""
    return str(files.read_json(path / STATE)["tensors"]["sha256"])


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _digest(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


# Modules and optimisers as tensors by name.


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers."""
    return {f"method.{name}": tensor for name, tensor in module.state_dict().items()}


@torch.no_grad()
def load_module(module: nn.Module, loaded: Loaded) -> None:
    """Copy the tensors of a checkpoint into a module of the same architecture."""
    mine = module_tensors(module)
    theirs = {name: t for name, t in loaded.tensors.items() if name.startswith("method.")}
    for name in sorted(mine.keys() ^ theirs.keys()):
        what = "lacks" if name in mine else "has, beyond the settings' model,"
        raise ValueError(f"{loaded.path} is of another architecture: it {what} {name[7:]}")
    for name, tensor in mine.items():
        if tensor.shape != theirs[name].shape:
            raise ValueError(
                f"{loaded.path} is of another architecture: {name[7:]} has the shape "
                f"{tuple(theirs[name].shape)}, the settings' model has {tuple(tensor.shape)}"
            )
    for name, tensor in mine.items():
        tensor.copy_(theirs[name])


def optimiser_tensors(optimiser: Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """The state of each trained parameter, by the parameter's name."""
    return {
        f"optimiser.{name}:{key}": value
        for name, parameter in module.named_parameters()
        for key, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


@torch.no_grad()
def load_optimiser(optimiser: Optimizer, module: nn.Module, loaded: Loaded) -> None:
    """Restore the state of an optimiser of the same kind."""
    numbers = {
        id(parameter): number
        for number, parameter in enumerate(
            parameter for group in optimiser.param_groups for parameter in group["params"]
        )
    }
    parameters = dict(module.named_parameters())
    state: dict[int, dict[str, Tensor]] = {}
    for full, value in loaded.tensors.items():
        if not full.startswith("optimiser."):
            continue
        name, _, key = full.removeprefix("optimiser.").rpartition(":")
        parameter = parameters.get(name)
        number = None if parameter is None else numbers.get(id(parameter))
        if parameter is None or number is None:
            raise ValueError(f"{loaded.path} is of another architecture: {name} is not trained")
        if value.shape == parameter.shape:  # in the parameter's own memory format
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state.setdefault(number, {})[key] = value
    optimiser.load_state_dict(optimiser.state_dict() | {"state": state})


# The state of torch's own generators: layers such as dropout draw from them.


def random_state(device: torch.device) -> Tensor:
    """As bytes: the CPU's generator, then the GPU's."""
    state = torch.get_rng_state()
    if device.type == "cuda":
        state = torch.cat([state, torch.cuda.get_rng_state(device)])
    return state


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Restore it."""
    size = torch.get_rng_state().numel()
    # Copies, since torch reads from where the storage begins, whatever part of it is handed over.
    torch.set_rng_state(state[:size].clone())
    if device.type == "cuda" and state.numel() > size:
        torch.cuda.set_rng_state(state[size:].clone(), device)
