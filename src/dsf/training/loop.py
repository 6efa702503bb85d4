"""The training loop."""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dsf import distributed
from dsf.data import Batch, Batches
from dsf.methods import Method, MethodOutput
from dsf.training import checkpoints as saved
from dsf.training.checkpoints import Checkpoints, Loaded
from dsf.training.graph import StepGraph
from dsf.training.health import NonFiniteLossError, Spread, collapse_warning
from dsf.training.metrics import Line, Meter, MetricsFile, add_states, means
from dsf.training.numerics import DTYPES, Precision
from dsf.training.schedules import Schedule
from dsf.training.signals import Interrupted, Signals
from dsf.training.votes import Votes


class Callback:
    """What happens beside the loop; override what is of interest. Only rank 0 has callbacks."""

    def line(self, line: Line) -> None:
        """A line of metrics was written."""

    def epoch(self, epoch: int, step: int) -> Iterable[Line]:
        """``epoch`` epochs are done, at first none; lines given back are written too."""
        return ()

    def say(self, text: str) -> None:
        """There is something to tell."""

    def close(self) -> None:
        """The loop has ended, however it did."""


@dataclass(frozen=True)
class Plan:
    """The numbers of a loop.

    Args:
        epochs: how long.
        views: views an image, of all sizes.
        accumulate: pieces a step is computed in.
        precision: of the encoder, by autocast where it is bf16.
        graph: record the step as a CUDA graph; for one process.
        log_every: steps between fetching metrics, which waits for the device.
        save_minutes: time between checkpoints.
        save_steps: steps between them, besides.
    """

    epochs: int
    views: int
    accumulate: int = 1
    precision: Precision = "fp32"
    graph: bool = False
    log_every: int = 50
    save_minutes: float = 2.0
    save_steps: int | None = None


class Loop:
    """Train a method from where a checkpoint left it, or from the start, to the end.

    Nothing in a step waits for the device: metrics stay there until they are fetched together.
    All randomness is a function of seed, epoch, sample and step, so the state that a checkpoint
    must hold is the tensors, the step, and the sums of metrics that are not written yet.

    Args:
        method: what is trained, on its device.
        batches: of images.
        views: (images, samples, epoch, view ids, sizes) to (B, M, 3, H, W), or to that and local
            ones, (B, L, 3, h, w).
        optimiser: of the method's parameters.
        schedule: the learning rate of a step.
        plan: how long, how often.
        checkpoints: where the state goes.
        metrics: opens the file of metrics, with the step that the loop starts from; None on ranks
            that do not write.
        callbacks: told of lines and epochs.
    """

    def __init__(
        self,
        method: Method,
        batches: Batches,
        views: nn.Module,
        optimiser: Optimizer,
        schedule: Schedule,
        plan: Plan,
        checkpoints: Checkpoints,
        metrics: Callable[[int], MetricsFile] | None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.method, self.batches, self.views = method, batches, views
        self.optimiser, self.schedule, self.plan = optimiser, schedule, plan
        self.checkpoints, self.callbacks = checkpoints, callbacks
        self.device = batches.device
        self.steps = plan.epochs * len(batches)
        self.step = 0
        self.peak_memory = 0
        self.seconds = {"all": 0.0, "epoch": 0.0, "window": 0.0}  # of training alone
        self._open_metrics = metrics
        self._metrics: MetricsFile | None = None
        self._view_ids = torch.arange(plan.views, device=self.device)
        self._spread = Spread(method)
        self._window = Meter(self.device)
        self._epoch: dict[str, list[float]] = {}
        self._images = 0  # since the last line
        self._clock = self._saved_at = time.perf_counter()
        self._step = StepGraph(self._compute) if plan.graph else self._compute
        self._model: nn.Module = method
        if distributed.world_size() > 1:
            self._model = distributed.parallel(method, self.device)

    def run(self) -> None:
        """Train to the end; raises ``Interrupted`` after a signal, once the state is saved."""
        self._metrics = self._open_metrics(self.step) if self._open_metrics else None
        self._clock = self._saved_at = time.perf_counter()
        self._votes = Votes(self.step, self.device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.method.train()
        try:
            if self.step == 0:
                self._callbacks(0)  # how good the untrained encoder is
            with Signals() as signals:
                while self.step < self.steps:
                    self._run_epoch(*divmod(self.step, len(self.batches)), signals)
        finally:
            for callback in self.callbacks:
                callback.close()
            if self._metrics is not None:
                self._metrics.close()

    def _run_epoch(self, epoch: int, start: int, signals: Signals) -> None:
        # As a tensor made there: a compiled graph must not depend on it, nor a step wait for it.
        number = torch.full((), epoch, dtype=torch.int64, device=self.device)
        with closing(self.batches.epoch(epoch, start)) as batches:
            for batch in batches:
                last = (self.step + 1) % len(self.batches) == 0
                log = last or (self.step + 1) % self.plan.log_every == 0
                self._train_step(batch, number, diagnose=log)
                self.step += 1
                if log:
                    self._log()
                if last:
                    self._end_epoch(epoch + 1)
                self._save_or_stop(log, signals)

    def try_steps(self) -> Generator[None, None, None]:
        """Train step after step without lines or checkpoints, to measure what a step costs."""
        self.method.train()
        first = True
        for epoch in count():
            number = torch.full((), epoch, dtype=torch.int64, device=self.device)
            with closing(self.batches.epoch(epoch)) as batches:
                for batch in batches:
                    self._train_step(batch, number, diagnose=first)
                    first = False
                    yield

    def _train_step(self, batch: Batch, epoch: Tensor, diagnose: bool) -> None:
        lr = self.schedule(self.step)
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):  # a recorded step reads it from there
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
        output = self._step(batch.samples, batch.images, epoch, diagnose)
        self._window.watch(output.loss, self.step + 1)
        self._window.add(loss=output.loss, **output.diagnostics)
        self._images += len(batch.samples) * distributed.world_size()

    def _compute(
        self, samples: Tensor, images: Tensor, epoch: Tensor, diagnose: bool
    ) -> MethodOutput:
        pieces = self.plan.accumulate
        split = zip(samples.chunk(pieces), images.chunk(pieces), strict=True)
        losses = []
        for number, piece in enumerate(split, start=1):
            with self._synchronised(number == pieces):
                output = self._forward(*piece, epoch, diagnose and number == pieces)
                (output.loss / pieces).backward()
            losses.append(output.loss.detach())
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.method.after_step()
        return MethodOutput(torch.stack(losses).mean(), output.diagnostics)

    def _forward(
        self, samples: Tensor, images: Tensor, epoch: Tensor, diagnose: bool
    ) -> MethodOutput:
        sizes = self.batches.sizes(samples)
        made = self.views(images, samples, epoch, self._view_ids, sizes)
        views, local = made if isinstance(made, tuple) else (made, None)
        if diagnose:
            self._spread.start()
        reduced = self.plan.precision == "bf16"
        try:
            with torch.autocast(self.device.type, DTYPES["bf16"], enabled=reduced):
                output: MethodOutput = self._model(views, diagnose, local)
        except ValueError as error:
            # Where checking costs nothing, on a CPU, a loss refuses such features by itself.
            if "finite" not in str(error):
                raise
            raise self._not_finite(f"the loss of step {self.step + 1} is") from error
        if diagnose:
            output = MethodOutput(output.loss, output.diagnostics | self._spread.stop())
        return output

    def _synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Gradients travel between processes only with the last piece of a step."""
        if last or not isinstance(self._model, DistributedDataParallel):
            return nullcontext()
        return self._model.no_sync()

    # Metrics.

    def _log(self) -> None:
        self._check_finite()
        state = self._window.fetch()
        self._epoch = add_states(self._epoch, state)
        self._lap()
        line = {
            "kind": "step",
            "step": self.step,
            "epoch": self.step / len(self.batches),
            **means(state),
            "lr": self.schedule(self.step - 1),
            "images_per_s": self._images / max(self.seconds["window"], 1e-9),
        }
        self._images, self.seconds["window"] = 0, 0.0
        self._write(line)

    def _end_epoch(self, epoch: int) -> None:
        averages = means(self._epoch)
        line = {"kind": "epoch", "epoch": epoch, "step": self.step, **averages}
        self._write(line | {"seconds": self.seconds["epoch"]})
        self._epoch, self.seconds["epoch"] = {}, 0.0
        if warning := collapse_warning(epoch, averages):
            self._write({"kind": "warning", "epoch": epoch, "step": self.step, "text": warning})
            self.say(warning)
        self._check_weights()  # before callbacks ask for features, which would be NaN
        self._share_statistics()
        self._callbacks(epoch)

    def _callbacks(self, epoch: int) -> None:
        for callback in self.callbacks:
            for line in callback.epoch(epoch, self.step):
                self._write(line)
        self.method.train()
        self._clock = time.perf_counter()  # evaluation is no training

    def _lap(self) -> None:
        """Count the time since the last lap as training; the device has just been waited for."""
        now = time.perf_counter()
        self.seconds = {name: total + now - self._clock for name, total in self.seconds.items()}
        self._clock = now

    def _write(self, line: Line) -> None:
        if self._metrics is not None:
            self._metrics.write(line)
            for callback in self.callbacks:
                callback.line(line)

    def say(self, text: str) -> None:
        """Tell all callbacks."""
        for callback in self.callbacks:
            callback.say(text)

    def _check_finite(self) -> None:
        bad = self._window.first_bad_step()
        if bad is not None:
            raise self._not_finite(f"the loss of step {bad} is")

    def _check_weights(self) -> None:
        lengths = torch._foreach_norm(list(self.method.parameters()))
        if not torch.stack(list(lengths)).isfinite().all():
            raise self._not_finite(f"the weights after step {self.step} are")

    def _not_finite(self, what: str) -> NonFiniteLossError:
        found, _ = self.checkpoints.newest()
        last = found.path if found else None
        lr = self.schedule(self.step - 1)
        return NonFiniteLossError(what, lr, last, self.plan.precision == "bf16")

    # The state.

    def _save_or_stop(self, logged: bool, signals: Signals) -> None:
        every = self.plan.save_steps
        due = self.step == self.steps or bool(every and self.step % every == 0)
        late = time.perf_counter() - self._saved_at > 60 * self.plan.save_minutes
        asked = signals.received is not None
        if distributed.world_size() > 1:
            # Clocks differ, and a signal may reach one process alone.
            together = logged or self._votes.due(self.step)
            late, asked = self._votes.vote(self.step, late, asked) if together else (False, False)
        if due or late or asked:
            self.save()
        if asked and self.step < self.steps:
            distributed.wait(self.device)  # once one has left, torchrun ends the others
            raise Interrupted(
                f"stopped by {signals.received or 'a signal'} after step {self.step} of "
                f"{self.steps}; the state is saved in {self.checkpoints.folder}"
            )

    def save(self) -> None:
        """Save a checkpoint; all processes must take part."""
        self._check_finite()
        self._check_weights()
        self._share_statistics()
        self._lap()
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_reserved(self.device)  # a graph's memory counts there only
            self.peak_memory = max(self.peak_memory, peak)
        random = saved.random_state(self.device).to(self.device)
        tensors = saved.module_tensors(self.method)
        tensors |= saved.optimiser_tensors(self.optimiser, self.method)
        tensors["random"] = distributed.gather(random.unsqueeze(0))
        state = {
            "epoch": self.step // len(self.batches),
            "batch": self.step % len(self.batches),
            "steps_per_epoch": len(self.batches),
            "window": self._window.state(),
            "window_images": self._images,
            "epoch_sums": self._epoch,
            "seconds": self.seconds,
            "peak_memory": self.peak_memory,
        }
        if self._metrics is not None:
            self._metrics.sync()  # what precedes the checkpoint must be there if it is
            self.checkpoints.save(self.step, tensors, state)
        self._clock = self._saved_at = time.perf_counter()

    def load(self, loaded: Loaded) -> None:
        """Go on from a checkpoint."""
        state = loaded.state
        if state["steps_per_epoch"] != len(self.batches):
            raise ValueError(
                f"{loaded.path} has {state['steps_per_epoch']} steps an epoch, the settings and "
                f"the data make {len(self.batches)}: the data set has changed"
            )
        saved.load_module(self.method, loaded)
        saved.load_optimiser(self.optimiser, self.method, loaded)
        random = loaded.tensors["random"]
        saved.set_random_state(random[distributed.rank() % len(random)], self.device)
        self.step = state["step"]
        self._window.load(state["window"])
        self._images = state["window_images"]
        self._epoch = state["epoch_sums"]
        self.seconds, self.peak_memory = state["seconds"], state["peak_memory"]

    @torch.no_grad()
    def _share_statistics(self) -> None:
        """Average the running statistics of BatchNorm, which differ between processes."""
        if distributed.world_size() > 1:
            for name, buffer in self.method.named_buffers():
                if name.endswith(("running_mean", "running_var")):
                    buffer.copy_(distributed.mean(buffer))
