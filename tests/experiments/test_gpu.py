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


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 0.005), ("bf16", 0.05)])
def test_the_fast_way_starts_as_the_plain_one_does(tmp_path, precision, tolerance):
    """One epoch: with 16 images a batch and 4 to a split of BatchNorm, roundings soon tell."""
    slow = ["compile=false", "precision=fp32", "autotune=false"]
    fast = [*ON_GPU, f"precision={precision}", "epochs=1"]
    runs = [
        train(tiny.settings(*overrides), tmp_path / name, show=False)
        for name, overrides in (("fast", fast), ("plain", [*fast, *slow]))
    ]
    one, other = (tiny.lines(folder, "epoch")[0]["loss"] for folder in runs)
    assert one == pytest.approx(other, rel=tolerance)


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
        ["views.local={count: 2, size: 8}"],
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


@pytest.mark.parametrize("overrides", [[], ["views.local={count: 2, size: 8}"]])
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
    from dsf.data.files import read_json

    folder = train(tiny.settings(*ON_GPU, "knn.every=1", "knn.k=20"), tmp_path / "run", show=False)
    assert len(tiny.lines(folder, "knn")) == 3
    assert read_json(folder / "results.json")["training"]["peak_memory_bytes"] > 1e6
