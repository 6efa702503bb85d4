"""The same program on a GPU: compiled, in bf16, deterministic where asked."""

import pytest
import tiny
import torch

from dsf.experiments import train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
ON_GPU = ["device=cuda", "views.size=16", "encoder.options={width: 16}"]
# Not so small that the last feature map is a single pixel, whose layout compiled graphs mistake.
LOCAL = ["views.size=32", "views.local={count: 2, size: 16}"]


PLAIN = ["compile=false", "graph=false", "precision=fp32", "autotune=false"]
CALM = ["epochs=1", "batch_size=64", "optimiser.lr=0.005", "log_every=1"]


def fast_and_plain(tmp_path, *overrides):
    fast = [*ON_GPU, *CALM, *overrides]
    return [
        train(tiny.settings(*chosen), tmp_path / name, show=False)
        for name, chosen in (("fast", fast), ("plain", [*fast, *PLAIN]))
    ]


def test_a_step_of_the_fast_way_is_one_of_the_plain(tmp_path):
    """One step: in later ones a rectifier here and there switches by the roundings of the first."""
    runs = fast_and_plain(tmp_path, "precision=fp32", "data.limit=64")
    one, other = (
        torch.cat(
            [t.flatten() for name, t in sorted(tiny.tensors(run).items()) if "momentum" in name]
        )
        for run in runs
    )
    assert (one - other).norm() < 1e-3 * other.norm()


def test_the_fast_way_learns_as_the_plain_one_does(tmp_path):
    runs = fast_and_plain(tmp_path, "data.limit=512")
    one, other = ([line["loss"] for line in tiny.lines(run, "step")] for run in runs)
    assert len(one) == 8
    assert one == pytest.approx(other, rel=0.05)


def test_streamed_and_resident_agree(tmp_path):
    exact = [*ON_GPU, "deterministic=true", "compile=false", "graph=true"]
    one = train(tiny.settings(*exact), tmp_path / "one", show=False)
    two = train(tiny.settings(*exact, "data.resident=false"), tmp_path / "two", show=False)
    assert tiny.same(one, two)


def test_a_streamed_run_resumes_in_mid_epoch(tmp_path):
    exact = [*ON_GPU, "deterministic=true", "compile=false", "graph=true"]
    streamed = [*exact, "data.resident=false", "epochs=4", "checkpoint.keep=9"]
    whole = train(tiny.settings(*exact, "epochs=4"), tmp_path / "whole", show=False)
    settings = tiny.settings(*streamed, "checkpoint.steps=9")  # 6 steps an epoch
    train(settings, tmp_path / "run", show=False)
    for step in (18, 24):
        (tmp_path / "run" / "checkpoints" / f"step-{step:08d}" / "state.json").unlink()
    train(settings, tmp_path / "run", resume=True, show=False)
    assert tiny.same(whole, tmp_path / "run")


@pytest.mark.parametrize("compiled", ["true", "false"])
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [*tiny.MOCOV3, "optimiser.name=adamw"],
        ["method=simclr", "loss.queue=0"],
        LOCAL,
        ["loss.name=poly-view"],
    ],
    ids=["moco", "mocov3", "simclr", "local", "poly-view"],
)
def test_resume_is_exact_if_deterministic(tmp_path, overrides, compiled):
    settings = tiny.settings(*ON_GPU, "deterministic=true", f"compile={compiled}", *overrides)
    whole = train(settings, tmp_path / "whole", show=False)
    often = tiny.settings(
        *ON_GPU, "deterministic=true", f"compile={compiled}", *overrides, "checkpoint.steps=5"
    )
    train(often, tmp_path / "run", show=False)
    assert tiny.same(whole, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "step-00000012" / "state.json").unlink()
    train(often, tmp_path / "run", resume=True, show=False)
    assert tiny.same(whole, tmp_path / "run")


@pytest.mark.parametrize("overrides", [[], LOCAL])
def test_no_step_waits_for_the_device(tmp_path, monkeypatch, overrides):
    from dsf.training.loop import Loop

    original = Loop._train_step

    def step(self, *arguments, **options):
        if self.step > 8:  # by then everything is compiled, tuned and recorded
            torch.cuda.set_sync_debug_mode("error")
        try:
            original(self, *arguments, **options)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Loop, "_train_step", step)
    train(tiny.settings(*ON_GPU, *overrides), tmp_path / "run", show=False)


def test_a_recorded_step_gives_the_same_numbers(tmp_path):
    exact = [*ON_GPU, "deterministic=true", "compile=false", "log_every=2", "epochs=3"]
    recorded = train(tiny.settings(*exact, "graph=true"), tmp_path / "recorded", show=False)
    plain = train(tiny.settings(*exact, "graph=false"), tmp_path / "plain", show=False)
    assert tiny.same(recorded, plain)


def test_evaluation_and_memory(tmp_path):
    from dsf.files import read_json

    folder = train(tiny.settings(*ON_GPU, "knn.every=1", "knn.k=20"), tmp_path / "run", show=False)
    assert len(tiny.lines(folder, "knn")) == 3
    assert read_json(folder / "results.json")["training"]["peak_memory_bytes"] > 1e6
