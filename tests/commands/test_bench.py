import json
import shlex
import sys

import pytest
import tiny
import torch

from dsf.cli import main


def test_a_step_is_measured(tmp_path, capsys):
    report = tmp_path / "step.json"
    arguments = ["bench", "step", *tiny.SETTINGS, "--steps", "2", "--json", str(report)]
    assert main(arguments) == 0
    first, products, *others, times = capsys.readouterr().out.splitlines()
    lines = [first, *others]
    assert [line.split("  ")[0] for line in lines] == [
        "as the recipe has it",
        "on views made before",
        "not as a CUDA graph",
        "nor compiled",
        "eager fp32",
    ]
    assert all("views/s" in line for line in lines)
    assert "TFLOP/s of a large matrix product" in products
    assert times.startswith("as the recipe has it: ")
    assert times.endswith(" times as fast as eager fp32")
    written = json.loads(report.read_text())
    assert written["recipe"] == "demo"
    assert {"command", "commit", "packages", "seed", "wall_s"} <= set(written["provenance"])
    slowest = written["steps"][-1]
    assert slowest["times"] == 1
    for step in written["steps"]:
        assert step["times"] == pytest.approx(slowest["milliseconds"] / step["milliseconds"])
        assert step["views_per_second"] > step["images_per_second"] > 0
    found = written["products"]
    rate = found["flop"] / (1e-3 * written["steps"][0]["milliseconds"])
    assert found["share"] == pytest.approx(rate / found["ceiling"])
    assert 0 < found["share"] < 1.5


def fail_at(monkeypatch, error, *variants):
    from dsf.experiments import cost

    measure = cost.measure

    def fails(what, *arguments):
        if what in variants:
            raise error("as asked")
        return measure(what, *arguments)

    monkeypatch.setattr(cost, "measure", fails)


def test_what_does_not_fit_is_left_out(tmp_path, capsys, monkeypatch):
    fail_at(monkeypatch, torch.OutOfMemoryError, "nor compiled", "eager fp32")
    report = tmp_path / "step.json"
    arguments = ["bench", "step", *tiny.SETTINGS, "--steps", "1", "--json", str(report)]
    assert main(arguments) == 0
    *_, compiled, eager, times = capsys.readouterr().out.splitlines()
    assert compiled == "nor compiled          does not fit into the GPU's memory"
    assert eager == "eager fp32            does not fit into the GPU's memory"
    assert times.endswith(" times as fast as not as a CUDA graph")
    assert [step["times"] for step in json.loads(report.read_text())["steps"]][-1:] == [1]


def test_the_recipe_itself_has_to_fit(monkeypatch):
    from dsf.experiments.cost import step_costs

    fail_at(monkeypatch, torch.OutOfMemoryError, "as the recipe has it")
    with pytest.raises(torch.OutOfMemoryError):
        next(step_costs("demo", tiny.SETTINGS, 1))


def test_what_is_measured_is_written_at_once(tmp_path, monkeypatch):
    fail_at(monkeypatch, KeyboardInterrupt, "on views made before")
    report = tmp_path / "step.json"
    arguments = ["bench", "step", *tiny.SETTINGS, "--steps", "1", "--json", str(report)]
    assert main(arguments) != 0
    written = json.loads(report.read_text())
    assert [step["what"] for step in written["steps"]] == ["as the recipe has it"]
    assert written["products"]["share"] > 0


def test_slow_steps_are_fewer(monkeypatch):
    from dsf.experiments import cost

    now = 0.0
    taken = []

    def take(run, count, device):
        nonlocal now
        now += 0.5 * count
        taken.append(count)

    monkeypatch.setattr(cost, "_take", take)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: now)
    assert cost._seconds(None, 1000, None) == 0.5
    assert taken == [5, 5, 10]  # after 10 s as many again would take longer than 20
    taken.clear()
    assert cost._seconds(None, 7, None) == 0.5
    assert taken == [5, 2]


def test_the_products_of_a_step_are_counted():
    """Forward and backward of the query encoder, forward of the key's: at most four forwards."""
    from torch.utils.flop_counter import FlopCounterMode

    from dsf.experiments import build
    from dsf.experiments.cost import products

    settings = build.resolve(tiny.settings())
    method = build.build_method(settings)
    images = settings.batch_size * settings.views.count // 2
    size = settings.views.size
    with FlopCounterMode(display=False) as counter:
        method.project(torch.zeros(images, 3, size, size))
    one_side = counter.get_total_flops()
    found = products("demo", tiny.SETTINGS).flop
    assert 3.5 * one_side < found < 4.5 * one_side


def test_local_views_are_measured_too(tmp_path, capsys):
    report = tmp_path / "step.json"
    local = "views.local={count: 2, size: 4}"
    arguments = ["bench", "step", *tiny.SETTINGS, local, "--steps", "1", "--json", str(report)]
    assert main(arguments) == 0
    for step in json.loads(report.read_text())["steps"]:
        assert step["views_per_second"] == pytest.approx(6 * step["images_per_second"])


def test_settings_are_checked(capsys):
    assert main(["bench", "step", "demo", "no=1"]) == 2
    assert "no" in capsys.readouterr().err
    assert main(["bench", "step", "demo", "--steps", "-1"]) == 2
    assert "--steps: must be a whole number >= 1; got '-1'" in capsys.readouterr().err


def test_options_of_another_benchmark_are_refused(capsys):
    assert main(["bench", "knn", "demo"]) == 2
    assert "RECIPE: is of `dsf bench step`; knn takes none" in capsys.readouterr().err
    assert main(["bench", "loss", "--steps", "3"]) == 2
    assert "--steps: is of `dsf bench step`; loss takes none" in capsys.readouterr().err
    assert main(["bench", "augment", "--profile"]) == 2
    assert "--profile: is of `dsf bench step`" in capsys.readouterr().err
    assert main(["bench", "step", "--repeats", "3"]) == 2
    assert "--repeats: a step is measured by --steps" in capsys.readouterr().err


def test_knn_is_measured(tmp_path, capsys, monkeypatch):
    from dsf.benchmarks import knn

    monkeypatch.setattr(knn, "SIZES", dict.fromkeys(("cpu", "cuda"), (400, 50)))
    monkeypatch.setattr(knn, "FAISS_SIZE", (300, 40))
    monkeypatch.setattr(knn, "SCIKIT_LEARN_SIZE", (300, 40))
    file = tmp_path / "knn.json"
    arguments = ["bench", "knn", "--repeats", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/dsf", *arguments])
    assert main(arguments) == 0
    assert "400 x 50, 10 classes, float32" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert written["provenance"]["command"] == shlex.join(["dsf", *arguments])
    assert {"commit", "seed", "cores", "wall_s"} <= set(written["provenance"])
    for name in ("10 classes", "1000 classes", "faiss-cpu", "scikit-learn"):
        ours, theirs = written[name]["rows"]
        assert ours["what"] == "dsf"
        assert theirs["times_dsf"] == pytest.approx(theirs["ms"] / ours["ms"])


def test_without_a_compiler_the_rest_is_measured(tmp_path, capsys, monkeypatch):
    from dsf.benchmarks import loss

    def fails(*arguments, **options):
        raise RuntimeError("no working C++ compiler\nand much more")

    monkeypatch.setattr(torch, "compile", fails)
    for name, size in {"N": 8, "K": 32, "LARGE": {"cpu": (16, 64), "cuda": (16, 64)}}.items():
        monkeypatch.setattr(loss, name, size)
    file = tmp_path / "loss.json"
    assert main(["bench", "loss", "--repeats", "1", "--json", str(file)]) == 0
    said = capsys.readouterr().out
    assert "nothing can be compiled here, so that is left out: no working C++ compiler\n" in said
    rows = json.loads(file.read_text())["losses"]
    assert len(rows) == 6
    for row in rows:
        assert "compiled_ms" not in row
        assert row["times_FeatureAverage"] == row["eager_ms"] / rows[0]["eager_ms"]


def test_the_folder_of_the_report_must_be_there(tmp_path, capsys):
    for what in ("step", "loss"):
        assert main(["bench", what, "--json", str(tmp_path / "none" / "report.json")]) == 2
        assert "none is no folder" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to profile")
def test_only_a_gpu_can_be_profiled(capsys):
    assert main(["bench", "step", *tiny.SETTINGS, "--profile"]) == 2
    assert "no CUDA device here whose kernels" in capsys.readouterr().err


@pytest.mark.gpu
def test_the_kernels_of_a_gpu_are_listed(tmp_path):
    report = tmp_path / "step.json"
    arguments = ["bench", "step", *tiny.SETTINGS, "device=cuda", "compile=false", "--steps", "2"]
    assert main([*arguments, "--profile", "--json", str(report)]) == 0
    rows = json.loads(report.read_text())["kernels"]
    kinds = [row for row in rows if not row["name"]]
    assert sum(row["share"] for row in kinds) == pytest.approx(1, abs=0.02)
    assert {"convolution", "idle"} <= {row["kind"] for row in kinds}


def test_images_have_the_stored_size():
    from dsf.experiments.build import resolve
    from dsf.experiments.cost import _many_images

    settings = resolve(tiny.settings("data={name: imagenette, size: 40}"))
    split = _many_images(settings)
    assert (split.image_size, len(split)) == (40, 2000)
    assert split.sizes() is not None
    assert _many_images(resolve(tiny.settings())).sizes() is None


def test_products_of_our_own_attention_are_counted_as_torch_counts_its_own():
    from torch.nn.functional import scaled_dot_product_attention
    from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count

    from dsf.experiments.cost import _ATTENTION
    from dsf.models import transformer

    q = torch.empty(2, 3, 65, 32, device="meta")
    with FlopCounterMode(display=False) as theirs:
        scaled_dot_product_attention(q, q, q)
    qkv = torch.empty(2, 65, 3 * 96, device="meta", requires_grad=True)
    bias = torch.empty(3 * 96, device="meta", requires_grad=True)
    with FlopCounterMode(display=False, custom_mapping=_ATTENTION) as ours:
        out = transformer._attend(qkv, bias, 3)[0]
    assert ours.get_total_flops() == theirs.get_total_flops() > 0
    with FlopCounterMode(display=False, custom_mapping=_ATTENTION) as ours:
        out.sum().backward()
    assert ours.get_total_flops() == sdpa_backward_flop_count(*[q.shape] * 4)
    assert (qkv.grad.shape, bias.grad.shape) == (qkv.shape, bias.shape)
