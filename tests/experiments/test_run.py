import re
import threading

import pytest
import tiny
import torch
import yaml

from dsf.cli import main
from dsf.experiments import build, load_recipe, train
from dsf.files import read_json
from dsf.training import Interrupted, NonFiniteLossError
from dsf.training.loop import Loop

LOCAL = ["views.local.count=2", "views.local.size=4"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    return train(tiny.settings(), tmp_path_factory.mktemp("runs") / "whole", show=False)


def test_the_folder_of_a_run(whole):
    names = {path.name for path in whole.iterdir()}
    assert names == {
        "config.yaml",
        "metrics.jsonl",
        "checkpoints",
        "results.json",
        "environment.json",
        ".lock",
    }
    config = yaml.safe_load((whole / "config.yaml").read_text())
    assert config["loss"].pop("block_size") == "auto"  # the loss decides by the size of its matrix
    assert "'auto'" not in str(config)
    assert (config["device"], config["precision"], config["compile"]) == ("cpu", "fp32", False)
    environment = read_json(whole / "environment.json")
    assert torch.__version__.startswith(environment["packages"]["torch"].split("+")[0])
    assert environment["processes"] == 1
    cost = read_json(whole / "results.json")["training"]
    assert (cost["images"], cost["views"]) == (12 * 16, 12 * 16 * 4)
    assert cost["device_seconds"] > 0
    assert cost["peak_memory_bytes"] > 0


def test_metrics(whole):
    steps, epochs = tiny.lines(whole, "step"), tiny.lines(whole, "epoch")
    assert [line["step"] for line in steps] == [4, 6, 8, 12]
    assert [line["epoch"] for line in epochs] == [1, 2]
    for line in (*steps, *epochs):
        assert {"loss", "margin", "positive", "negative", "kappa_mean", "resultant_mean"} <= {*line}
    # The first line is the mean of 4 steps, the second of 2; an epoch's is that of its steps.
    mean = (4 * steps[0]["loss"] + 2 * steps[1]["loss"]) / 6
    assert epochs[0]["loss"] == pytest.approx(mean, rel=1e-12)
    assert steps[-1]["lr"] < steps[1]["lr"]


def test_the_config_repeats_the_run(whole, tmp_path):
    again = train(load_recipe(str(whole / "config.yaml")), tmp_path / "again", show=False)
    assert tiny.same(whole, again)


def test_settings_matter(whole, tmp_path):
    other = train(tiny.settings("seed=1"), tmp_path / "other", show=False)
    assert tiny.lines(other) != tiny.lines(whole)


def test_streamed_images_give_the_same_run(whole, tmp_path):
    other = train(tiny.settings("data.resident=false"), tmp_path / "other", show=False)
    assert tiny.same(whole, other)


def test_a_streamed_run_resumes_in_mid_epoch(whole, tmp_path, monkeypatch):
    tiny.stop_after(monkeypatch, 9)  # of 6 steps an epoch
    settings = tiny.settings("data.resident=false")
    with pytest.raises(Interrupted, match="after step 9 of 12") as stopped:
        train(settings, tmp_path / "run", show=False)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("dsf-gather")], stopped
    monkeypatch.undo()
    train(settings, tmp_path / "run", resume=True, show=False)
    assert tiny.same(whole, tmp_path / "run")


@pytest.mark.parametrize("stop_at", [1, 5, 6, 11])
def test_an_interrupted_run_resumes_exactly(whole, tmp_path, monkeypatch, stop_at):
    """Within a window of metrics, before and at the end of an epoch, just before the end."""
    tiny.stop_after(monkeypatch, stop_at)
    with pytest.raises(Interrupted, match=f"stopped by SIGTERM after step {stop_at} of 12"):
        train(tiny.settings(), tmp_path / "run", show=False)
    monkeypatch.undo()
    assert (tmp_path / "run" / "checkpoints" / f"step-{stop_at:08d}").is_dir()
    train(tiny.settings(), tmp_path / "run", resume=True, show=False)
    assert tiny.same(whole, tmp_path / "run")
    resumed = read_json(tmp_path / "run" / "environment.json")["resumed"]
    assert [entry["step"] for entry in resumed] == [stop_at]


@pytest.mark.parametrize(
    "overrides",
    [
        tiny.MOCOV3,
        [*tiny.MOCOV3, "optimiser.name=adamw", "optimiser.lr=0.001", "momentum.schedule=cosine"],
        ["method=simclr", "loss.queue=0", "optimiser.name=lars", "schedule.per=epoch"],
        ["loss.name=loss-average", "momentum.symmetric=true", "accumulate=2"],
        ["loss.name=feature-average", "encoder.name=timm/resnet10t", "encoder.options={drop_rate: "
         "0.5}"],
        ["loss.name=poly-view", "loss.pooling=arithmetic"],
        ["loss.name=poly-view", "method=simclr", "loss.queue=0"],
        LOCAL,
        [*LOCAL, *tiny.MOCOV3, "loss.name=poly-view"],
        [*LOCAL, "method=simclr", "loss.queue=0", "loss.name=feature-average"],
        [*LOCAL, "loss.name=loss-average", "momentum.symmetric=true", "accumulate=2"],
        [*LOCAL, "views.size=32", "views.local.size=16", "encoder.name=mocov3-vit-small",
         "encoder.options={image_size: 32, depth: 1, embed_dim: 48, num_heads: 2}"],
        ["precision=fp64", "loss.name=cosine", "views.count=2"],
        ["views.recipe=mocov3-1", "views.second=mocov3-2", "loss.mode=exact", "head=mlp"],
    ],
    ids=["mocov3", "adamw", "lars", "accumulate", "dropout", "poly-view",
         "poly-view-simclr", "local", "local-mocov3", "local-simclr", "local-symmetric",
         "local-vit", "fp64", "two-recipes"],
)  # fmt: skip
def test_every_kind_of_state_resumes_exactly(tmp_path, overrides):
    settings = tiny.settings("epochs=1", "log_every=2", *overrides)
    often = tiny.settings(
        "epochs=1", "log_every=2", *overrides, "checkpoint.steps=3", "checkpoint.keep=9"
    )
    train(settings, tmp_path / "whole", show=False)
    train(often, tmp_path / "run", show=False)
    assert tiny.same(tmp_path / "whole", tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "step-00000006"
    (last / "state.json").unlink()
    train(often, tmp_path / "run", resume=True, show=False)
    assert tiny.same(tmp_path / "whole", tmp_path / "run")


def test_local_views_count_and_matter(whole, tmp_path):
    folder = train(tiny.settings(*LOCAL), tmp_path / "local", show=False)
    assert tiny.lines(folder) != tiny.lines(whole)
    assert tiny.tensors(folder).keys() == tiny.tensors(whole).keys()
    assert read_json(folder / "results.json")["training"]["views"] == 12 * 16 * 6
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["views"]["local"] == {"count": 2, "size": 4, "crop_scale": [0.05, 0.14]}
    other = tiny.settings(*LOCAL, "views.local.crop_scale=[0.1, 0.2]")
    with pytest.raises(ValueError, match=r"views.local.crop_scale: the run in .* has \(0.05, 0.1"):
        train(other, folder, resume=True, show=False)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["encoder.name=timm/vit_tiny_patch16_224", "encoder.options={img_size: 32, depth: 1}"],
            r"views.local.size: timm/vit_tiny_patch16_224 takes no images of 16 pixels: .*"
            r"Try encoder.options=\{dynamic_img_size: true\}",
        ),
        (
            ["encoder.name=mocov3-vit-small", "views.local.size=24"],
            r"mocov3-vit-small takes no images of 24 pixels: .*divisible by patch size \(16\)\.$",
        ),
    ],
)
def test_encoders_that_take_no_local_views(tmp_path, overrides, message):
    size = ["views.size=32", "views.local.count=2", "views.local.size=16"]
    with pytest.raises(ValueError, match=message):
        train(tiny.settings(*size, "encoder.options={}", *overrides), tmp_path / "run", show=False)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_stays(whole, capsys):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("step-*/*")}
    metrics = tiny.lines(whole)
    train(tiny.settings(), whole, resume=True, show=False)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("step-*/*")} == before
    assert tiny.lines(whole) == metrics


def test_never_over_another_run(whole, tmp_path):
    with pytest.raises(FileExistsError, match="holds a run already: --resume goes on"):
        train(tiny.settings(), whole, show=False)
    with pytest.raises(ValueError, match=r"optimiser.lr: the run in .* has 0.06; got 0.5"):
        train(tiny.settings("optimiser.lr=0.5"), whole, resume=True, show=False)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(FileExistsError, match="is not empty and holds no run"):
        train(tiny.settings(), tmp_path, show=False)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    "wrong", [["encoder.name=timm/resnet19", "encoder.options={}"], ["batch_size=128"]]
)
def test_what_cannot_be_built_leaves_no_run(tmp_path, wrong):
    with pytest.raises(ValueError, match="resnet19|batch_size: must be at most the 96 images"):
        train(tiny.settings(*wrong), tmp_path / "runs" / "run", show=False)
    assert list(tmp_path.iterdir()) == []


def test_another_size_of_the_same_folder_comes_later(tmp_path, monkeypatch):
    import miniature

    from dsf.data import prepare

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', {'': 40})}"
    prepare(name, size=32)
    settings = tiny.settings(f"data.name={name}", "epochs=1", "batch_size=16", "knn.every=0")
    folder = train(settings, tmp_path / "run", show=False)
    prepare(name, size=48)
    config = folder / "config.yaml"
    train(load_recipe(str(config)), folder, resume=True, show=False)
    # A run from before sizes were written down says which, and goes on.
    config.write_text(config.read_text().replace("  size: 32\n  limit", "  size: null\n  limit"))
    with pytest.raises(ValueError, match="sizes 32, 48: take data.size=48, the one"):
        train(load_recipe(str(config)), folder, resume=True, show=False)
    train(load_recipe(str(config), ["data.size=32"]), folder, resume=True, show=False)


def test_a_folder_that_changes(tmp_path, monkeypatch, capsys):
    import miniature

    from dsf.data import prepare

    monkeypatch.setenv("DSF_DATA", str(tmp_path / "root"))
    counts = {f"{split}/{kind}": 20 for split in ("train", "test") for kind in ("a", "b")}
    pictures = miniature.picture_folder(tmp_path / "pictures", counts)
    name = f"folder:{pictures}"
    prepare(name, size=32)
    settings = tiny.settings(f"data.name={name}", "epochs=1", "batch_size=16", "knn.every=0")
    folder = train(settings, tmp_path / "run", show=False)
    assert main(["eval", str(folder)]) == 0
    assert "has changed" not in capsys.readouterr().err
    next(pictures.glob("train/a/*")).unlink()
    stale = f"note: {name} has changed since its store was prepared, "
    again = ["train", "demo", *tiny.SETTINGS, f"data.name={name}", "epochs=1", "-o"]
    for command in (["eval", str(folder)], [*again, str(tmp_path / "other")]):
        assert main(command) == 0
        assert capsys.readouterr().err.count(stale) == 1
    pictures.rename(tmp_path / "elsewhere")  # the store is enough
    for command in (["eval", str(folder)], [*again, str(tmp_path / "third")]):
        assert main(command) == 0
        assert "has changed" not in capsys.readouterr().err
    (tmp_path / "elsewhere").rename(pictures)
    prepare(name, size=32)
    assert main(["eval", str(folder)]) == 0
    assert f"note: {name} has changed since it was learned from\n" in capsys.readouterr().err
    with pytest.raises(ValueError, match="has changed since .*run began to learn from it"):
        train(settings, folder, resume=True, show=False)


def test_checkpoints_may_change_on_resume(whole):
    train(tiny.settings("checkpoint.keep=7"), whole, resume=True, show=False)


def test_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot make the run folder .*/file/run: Not a directory"):
        train(tiny.settings(), tmp_path / "file" / "run", show=False)


def test_missing_data(tmp_path, monkeypatch):
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="run `dsf data prepare cifar10`"):
        train(tiny.settings("data.name=cifar10"), tmp_path / "run", show=False)
    assert not (tmp_path / "run").exists()


def test_too_few_images(tmp_path):
    with pytest.raises(ValueError, match="batch_size: must be at most the 8 images; got 16"):
        train(tiny.settings("data.limit=8"), tmp_path / "run", show=False)


def test_no_cuda(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device: there is no CUDA device here"):
        train(tiny.settings("device=cuda"), tmp_path / "run", show=False)


def test_a_loss_that_is_not_finite(tmp_path):
    overrides = ("optimiser.lr=1e30", "schedule.name=constant", "schedule.warmup_epochs=0")
    settings = tiny.settings(*overrides, "checkpoint.steps=1", "log_every=6", "head=mlp")
    with pytest.raises(NonFiniteLossError) as caught:
        train(settings, tmp_path / "run", show=False)
    message = str(caught.value)
    assert re.match(r"the (loss of|weights after) step \d+ (is|are) not finite; ", message)
    assert "learning rate is too high (here 1e+30)" in message
    saved = sorted((tmp_path / "run" / "checkpoints").glob("*"))
    expected = f"the last good checkpoint is {saved[-1]}." if saved else "no checkpoint yet."
    assert expected in message
    for tensor in tiny.tensors(tmp_path / "run").values() if saved else ():
        assert tensor.isfinite().all()


def test_weights_that_diverge_in_the_last_step_of_an_epoch(tmp_path, monkeypatch):
    """The monitor, whose turn it is then, knows of features alone and not why they are NaN."""
    original = Loop._train_step

    def step(self, *arguments, **options):
        original(self, *arguments, **options)
        if self.step == 5:
            with torch.no_grad():
                next(self.method.encoder.parameters()).fill_(torch.nan)

    monkeypatch.setattr(Loop, "_train_step", step)
    with pytest.raises(NonFiniteLossError, match="the weights after step 6 are not finite"):
        train(tiny.settings("knn.every=1", "knn.k=20"), tmp_path / "run", show=False)


@pytest.mark.parametrize("overrides", [(), ("loss.name=feature-average",)], ids=["dsf", "cosine"])
def test_the_step_and_the_checkpoint_before_it_are_named(tmp_path, monkeypatch, overrides):
    """DSF refuses such features by itself on a CPU, a loss of cosines returns what it gets."""
    original = Loop._train_step

    def step(self, *arguments, **options):
        if self.step == 8:
            next(self.method.encoder.parameters()).data[0] = torch.nan
        original(self, *arguments, **options)

    monkeypatch.setattr(Loop, "_train_step", step)
    settings = tiny.settings("checkpoint.steps=3", "log_every=6", *overrides)
    message = (
        r"the loss of step 9 is not finite; the last good checkpoint is .*step-00000006\. Most"
    )
    with pytest.raises(NonFiniteLossError, match=message):
        train(settings, tmp_path / "run", show=False)
    monkeypatch.undo()
    train(settings, tmp_path / "run", resume=True, show=False)
    assert tiny.lines(tmp_path / "run")[-1]["step"] == 12


def test_collapse_is_said_in_words(tmp_path, capsys, monkeypatch):
    original = build.build_method

    def collapsed(*arguments):
        method = original(*arguments)
        for projector in (method.projector, method.key_projector):
            torch.nn.init.zeros_(projector[-1].weight)
            torch.nn.init.ones_(projector[-1].bias)
        return method

    monkeypatch.setattr(build, "build_method", collapsed)
    train(tiny.settings("head=mlp", "optimiser.lr=1e-9"), tmp_path / "run")
    warnings = tiny.lines(tmp_path / "run", "warning")
    assert [line["epoch"] for line in warnings] == [1, 2]
    assert "epoch 1: the features of all images nearly coincide" in capsys.readouterr().err


def test_no_false_alarm(whole):
    assert tiny.lines(whole, "warning") == []


def test_plain_lines(tmp_path, capsys):
    train(tiny.settings(), tmp_path / "run")
    text = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step")]
    assert text[0].startswith("step 4/12  epoch 1/2  loss ")
    assert text[-1].startswith("step 12/12  epoch 2/2  loss ")
    for word in ("margin", "kappa", "images/s", "left"):
        assert word in text[0]


def test_it_says_that_it_compiles(tmp_path, capsys):
    told = "compiling: the first step may take"
    for again in (False, True):
        with torch.compiler.set_stance("force_eager"):
            train(tiny.settings("compile=true"), tmp_path / "run", resume=again)
        assert (told in capsys.readouterr().err) is not again  # a run that is complete does not


@pytest.mark.parametrize(("setting", "package"), [("tensorboard=true", "tensorboard")])
def test_loggers_that_are_not_installed(tmp_path, monkeypatch, setting, package):
    import importlib

    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ValueError, match=rf"{setting} needs the package {package}, which is not"):
        train(tiny.settings(setting), tmp_path / "run", show=False)
