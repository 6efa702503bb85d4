"""The recipes of ImageNet-100 and Imagenette, on a few small images and in a narrow transformer."""

import pytest
import tiny
import torch
import yaml

from dsf.experiments import load_recipe, load_run, train
from dsf.experiments.build import build_method

SMALL = [
    "data={name: embedded, limit: 32}",
    "views.size=16",
    "batch_size=8",
    "epochs=1",
    "schedule.warmup_epochs=0.5",
    "encoder.options={embed_dim: 24, depth: 2, num_heads: 3}",
    "hidden=32",
    "dimension=16",
    "knn={every: 1, k: 20}",
    "device=cpu",
]


@pytest.mark.parametrize("data", ["imagenet100", "imagenette"])
@pytest.mark.parametrize("kind", ["mocov3", "loss-avg", "feature-avg", "dsf"])
def test_a_recipe_trains_what_it_should(tmp_path, data, kind):
    folder = train(load_recipe(f"{data}-{kind}", SMALL), tmp_path / "run", show=False)
    rate = load_recipe(f"{data}-{kind}").optimiser.base_lr
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["encoder"]["options"]["image_size"] == 16
    assert config["optimiser"]["lr"] == pytest.approx(rate * 8 / 256)
    assert [line["epoch"] for line in tiny.lines(folder, "knn")] == [0, 1]
    settings, trained, _ = load_run(folder, "cpu")
    untrained = build_method(settings)
    moved = {
        name
        for name, value in untrained.named_parameters()
        if not torch.equal(value, trained.get_parameter(name))
    }
    frozen = {
        f"{side}.{name}"
        for side in ("encoder", "key_encoder")
        for name in ("pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias")
    }
    everything = {name for name, _ in untrained.named_parameters()}
    assert moved == everything - frozen  # biases too: weight decay and gradients reach all
