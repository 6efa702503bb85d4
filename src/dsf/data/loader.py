"""Views as a loader: what ``dsf train`` makes of images, for the training loops of others."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dsf.data.augment import Recipe, TwoSides, Views
from dsf.data.batches import Batches, room
from dsf.data.folder import PREFIX
from dsf.data.forms import Form, ViewBatch, find_form
from dsf.data.registry import EMBEDDED, SeveralSizesError, load, open_store, prepare
from dsf.data.sampler import EpochSampler
from dsf.data.split import Split
from dsf.data.stream import Batch
from dsf.data.writer import BrokenImagesError

Images = str | Path | Split | Tensor | tuple[Tensor, Tensor]
Kinds = str | Recipe | tuple[str | Recipe, str | Recipe] | nn.Module


class ViewLoader:
    """Batches of M views an image, made on the device, one epoch an iteration.

    It stands where a ``DataLoader`` with a transform would: images are decoded once, kept on the
    device where they fit or else streamed to it, and augmented there, a batch at a time. Order and
    views are functions of (seed, epoch, sample, view) alone: the same on every device, for any
    number of processes and after a resume.

    Every iteration is the next epoch, unless ``set_epoch`` says which; so is
    ``loader.sampler.set_epoch``, which Lightning calls by itself. ``state_dict`` tells how far it
    has come, to the batch; after ``load_state_dict`` the next iteration goes on there. Processes of
    ``torch.distributed`` share the images, whether it was started before or after this loader was
    made, and all have the same number of batches.

    A batch has one of these forms, or is what a function makes of a ``ViewBatch``:

    - ``"plain"``: ``ViewBatch(views, labels, samples)``, views (B, M, 3, H, W) as ``dsf.methods``
      take them;
    - ``"lightly"``: ``(views, labels, samples)``, views a list of M tensors (B, 3, H, W);
    - ``"solo-learn"``: ``[samples, views, labels]``, views likewise.

    ``samples`` are the indices of the images, ``labels`` is -1 where there are none. All of it is
    on the device already; to move it there once more costs nothing.

    Args:
        data: the name of a prepared data set, as ``"cifar10"`` or ``"folder:PATH"``, or
            ``"embedded"``; a ``Path``, a folder of images, which is prepared here if it is not, by
            one process while the others wait; a ``Split``; uint8 images (N, 3, S, S), or a pair of
            them and labels (N,).
        batch_size: images a batch and process.
        views: M.
        recipe: a ``dsf.data.augment.Recipe`` or its name; a pair, the second for the second half of
            the views; or a module that makes views, as ``MultiCrop``, to which ``view_size``,
            ``exact`` and ``dtype`` do not apply.
        view_size: height and width of the views; by default those of the stored images.
        form: of the batches.
        split: which, of a data set or folder.
        stored_size: the side of the stored images; by default that of the only store there is, or
            256 of a folder that is not prepared yet.
        seed: of order and views; of the order alone where a module with its own makes the views.
        drop_last: leave out what makes no full batch; else the last batch is smaller.
        device: by default the current CUDA device when the first batch is made, or the CPU.
        resident: keep all images on the device; "auto": if they take up to half of what is free.
        compile: compile what makes the views; "auto": on a GPU, where it is many times as fast.
        exact: see ``dsf.data.augment.Views``.
        dtype: of the views.
        rank: this process; by default what ``torch.distributed`` says.
        world_size: how many there are, likewise.

    Example:
        >>> loader = ViewLoader("embedded", batch_size=4, views=2, split="test", device="cpu")
        >>> batch = next(iter(loader))
        >>> len(loader), batch.views.shape, batch.labels.shape
        (250, torch.Size([4, 2, 3, 32, 32]), torch.Size([4]))
    """

    def __init__(
        self,
        data: Images,
        batch_size: int,
        views: int = 2,
        recipe: Kinds = "cifar",
        *,
        view_size: int | None = None,
        form: str | Form = "plain",
        split: str = "train",
        stored_size: int | None = None,
        seed: int = 0,
        drop_last: bool = True,
        device: torch.device | str | None = None,
        resident: bool | Literal["auto"] = "auto",
        compile: bool | Literal["auto"] = "auto",
        exact: bool = True,
        dtype: torch.dtype = torch.float32,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if views < 1:
            raise ValueError(f"views must be at least 1; got {views}")
        if isinstance(recipe, tuple) and views % 2:
            raise ValueError(f"views must be even with a recipe for each half; got {views}")
        for name, value in (("resident", resident), ("compile", compile)):
            if value not in (True, False, "auto"):
                raise ValueError(f"{name} must be True, False or 'auto'; got {value!r}")
        self.split = _opened(data, split, stored_size)
        self.batch_size, self.views, self.seed, self.drop_last = batch_size, views, seed, drop_last
        self._device, self._resident, self._compile = device, resident, compile
        self._rank, self._world_size = rank, world_size
        self._form = find_form(form)
        size = self.split.image_size if view_size is None else view_size
        self._maker = _maker(recipe, size, seed, exact, dtype)
        self._start = self._position = (0, 0)  # epoch and batch: of the next iteration, of the next
        self._sampler()  # a wrong batch_size is told here

    @cached_property
    def device(self) -> torch.device:
        """Where batches are made; settled when it is first asked for."""
        device = self._device
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return device

    @property
    def sampler(self) -> "ViewLoader":
        """Whoever is told the epoch: itself."""
        return self

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._position[0]

    def __len__(self) -> int:
        """Batches an epoch and process."""
        return len(self._sampler())

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, or the rest of the one that was loaded."""
        # This runs when the first batch is asked for: Lightning opens a loader more than once.
        epoch, start = self._start
        self._start = epoch + 1, 0
        batches = self._batches
        batches.sampler = self._sampler(batches.sampler.device)
        total = len(batches)
        # As a tensor made there: a compiled graph must not depend on it.
        number = torch.full((), epoch, dtype=torch.int64, device=self.device)
        with closing(batches.epoch(epoch, start)) as images:
            for count, batch in enumerate(images, start + 1):
                made = self._make(batch, number)
                self._position = (epoch, count) if count < total else (epoch + 1, 0)
                yield self._form(made)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration; the one that was loaded goes on where it was."""
        if not 0 <= epoch < 2**32:
            raise ValueError(f"epoch must be in [0, 2^32); got {epoch}")
        if epoch != self._start[0]:
            self._start = epoch, 0
        self._position = self._start

    def state_dict(self) -> dict[str, int]:
        """The place of the next batch, and whatever must be equal for it to mean the same."""
        epoch, batch = self._position
        return {"epoch": epoch, "batch": batch, **self._order()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on at the place that ``state_dict`` told."""
        order = self._order()
        if missing := [name for name in ("epoch", "batch", *order) if name not in state]:
            raise ValueError(f"state is of no ViewLoader: it has {[*state]}, but no {missing[0]!r}")
        for name, here in order.items():
            if state[name] != here:
                raise ValueError(
                    f"state is of another order of images: {name} is {state[name]} there, "
                    f"{here} here"
                )
        self._start = self._position = state["epoch"], state["batch"]

    def _order(self) -> dict[str, int]:
        sampler = self._sampler()
        together = sampler.batch_size * sampler.world_size
        return {"seed": self.seed, "images": len(self.split), "images_a_step": together}

    def _sampler(self, device: torch.device | str = "cpu") -> EpochSampler:
        # Made anew whenever it is needed: Lightning starts torch.distributed after the loader.
        return EpochSampler(
            len(self.split),
            self.batch_size,
            self.seed,
            self._rank,
            self._world_size,
            device,
            self.drop_last,
        )

    @cached_property
    def _batches(self) -> Batches:
        resident = self._resident
        if resident == "auto":
            resident = self.split.nbytes <= room(self.device)
        sampler = self._sampler(self.device if resident else "cpu")
        return Batches(self.split, sampler, self.device, resident)

    @cached_property
    def _views(self) -> tuple[nn.Module, Tensor, Tensor]:
        """What makes the views, their numbers, and the labels of all images."""
        maker = self._maker.to(self.device)
        compiled = self.device.type == "cuda" if self._compile == "auto" else self._compile
        if compiled:
            maker.compile(dynamic=False)
        ids = torch.arange(self.views, device=self.device)
        if self.split.labelled:
            return maker, ids, self.split.labels(self.device)
        return maker, ids, torch.full((len(self.split),), -1, device=self.device)

    @torch.no_grad()
    def _make(self, batch: Batch, epoch: Tensor) -> ViewBatch:
        maker, ids, labels = self._views
        sizes = self._batches.sizes(batch.samples)
        made = maker(batch.images, batch.samples, epoch, ids, sizes)
        return ViewBatch(made, labels[batch.samples], batch.samples)


def _prepared_size(name: str) -> int | None:
    """The only size of a data set that is prepared; None if none is, or if it is embedded."""
    try:
        return None if name == EMBEDDED else open_store(name).image_size
    except FileNotFoundError:
        return None
    except SeveralSizesError as error:
        raise ValueError(error.explain(f"stored_size={error.newest}")) from None


def _opened(data: Images, split: str, size: int | None) -> Split:
    if isinstance(data, Split):
        return data
    if isinstance(data, str):
        return load(data, split, _prepared_size(data) if size is None else size)
    if isinstance(data, Path):
        name = f"{PREFIX}{data}"
        size = _prepared_size(name) if size is None else size
        try:
            return prepare(name, size=size, wait=True).split(split)
        except BrokenImagesError as error:
            choice = f"dsf.data.prepare({name!r}, size={size}, skip_broken=True)"
            raise ValueError(error.explain(choice)) from error
    if isinstance(data, Tensor):
        return Split.of_tensors(data)
    if isinstance(data, tuple) and len(data) == 2:
        return Split.of_tensors(*data)
    raise ValueError(
        "data must be the name of a data set, the Path of a folder, a Split, images, or a pair of "
        f"images and labels; got {type(data).__name__}"
    )


def _maker(recipe: Kinds, size: int, seed: int, exact: bool, dtype: torch.dtype) -> nn.Module:
    if isinstance(recipe, nn.Module):
        return recipe
    if not isinstance(recipe, tuple):
        return Views(recipe, size, seed, exact, dtype)
    if len(recipe) != 2:
        raise ValueError(f"recipe must be one or a pair; got {len(recipe)} of them")
    first, second = (Views(side, size, seed, exact, dtype) for side in recipe)
    return TwoSides(first, second)
