import re
from dataclasses import replace

import pytest
import yaml

from dsf.experiments import describe, dump, load_recipe, make_settings, recipe_names
from dsf.experiments.build import resolve
from dsf.experiments.settings import Optimiser, Settings, check_batch

RECIPES = [
    "cifar10-dcl-dsf",
    "cifar10-dsf",
    "cifar10-feature-avg",
    "cifar10-loss-avg",
    "cifar10-moco",
    "cifar10-mocov3-dsf",
    "cifar10-simclr-dsf",
    "demo",
    "imagenet100-dsf",
    "imagenet100-feature-avg",
    "imagenet100-loss-avg",
    "imagenet100-mocov3",
    "imagenette-dsf",
    "imagenette-feature-avg",
    "imagenette-loss-avg",
    "imagenette-mocov3",
]
MOCOV3 = [name for name in RECIPES if load_recipe(name).method == "mocov3"]


def test_names():
    assert recipe_names() == RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_says_its_command_and_repeats(name, tmp_path):
    settings = load_recipe(name)
    assert settings.recipe == name
    about = describe(name)
    assert about.command == f"dsf train {name}"
    assert about.reaches
    assert about.hardware
    config = tmp_path / "config.yaml"
    config.write_text(dump(settings))
    assert load_recipe(str(config)) == settings
    assert yaml.safe_load(config.read_text()).keys() == Settings.model_fields.keys()


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in MOCOV3])
def test_the_head_is_ours_unless_asked(name):
    assert load_recipe(name).head == "mlp-bn"
    assert load_recipe(name, ["head=mlp"]).head == "mlp"


def test_views_of_two_kinds_share_a_normalisation():
    overrides = ["views.second=mocov3-2", "views.options={crop_scale: [0.5, 1.0], flip: 0.0}"]
    first, second = load_recipe("demo", overrides).views.recipes()
    assert first.crop_scale == second.crop_scale == (0.5, 1.0)
    assert first.flip == second.flip == 0
    assert (first.mean, first.std) == (second.mean, second.std)
    assert (first.solarize, second.solarize) == (0.0, 0.2)


def test_local_views():
    settings = load_recipe("cifar10-dsf", ["views.local={count: 6, crop_scale: [0.05, 0.2]}"])
    assert (settings.views.total, settings.views.local.size) == (14, 16)
    recipe = settings.views.recipes()[0]
    assert settings.views.local_recipe() == replace(recipe, crop_scale=(0.05, 0.2))
    assert load_recipe("cifar10-dsf").views.total == 8
    with pytest.raises(ValueError, match=r"divide the 256 local views \(256 images x 1\).* 512"):
        load_recipe("cifar10-dsf", ["views.local.count=1", "batch_norm.splits=512"])
    with pytest.raises(ValueError, match=r"views.local.count: loss.name=cosine takes 2 .*got 4"):
        load_recipe("cifar10-moco", ["views.local.count=2"])


def test_the_authors_settings():
    dsf, moco = load_recipe("cifar10-dsf"), load_recipe("cifar10-moco")
    # But for the learning rates: see the recipes for how they were chosen.
    assert (dsf.batch_size, dsf.views.count, dsf.epochs) == (256, 8, 250)
    assert (moco.batch_size, moco.views.count, moco.epochs) == (1024, 2, 800)
    for settings in (dsf, moco):
        assert settings.loss.queue == 4096
        assert settings.batch_norm.splits == 8
        assert settings.momentum.value == 0.99
    assert (dsf.loss.temperature, moco.loss.temperature) == (1.0, 0.1)


@pytest.mark.parametrize("data", ["imagenet100", "imagenette"])
@pytest.mark.parametrize("kind", ["mocov3", "loss-avg", "feature-avg", "dsf"])
def test_the_authors_settings_of_mocov3(data, kind):
    settings = load_recipe(f"{data}-{kind}")
    two = kind == "mocov3"
    assert (settings.batch_size, settings.views.count) == ((512, 2) if two else (128, 8))
    two_views = {"imagenet100": 300, "imagenette": 400}
    assert settings.epochs == (two_views[data] if two else 100)
    assert settings.views.size == (224 if data == "imagenet100" else 128)
    optimiser = settings.optimiser
    assert (optimiser.name, optimiser.weight_decay, optimiser.decay_all) == ("adamw", 0.1, True)
    # The authors', but where another was chosen: see the recipes.
    chosen = {"imagenette": {"dsf": 1.5e-3, "feature-avg": 1.5e-3}}
    assert optimiser.base_lr == chosen.get(data, {}).get(kind, 5e-3)
    assert optimiser.lr == pytest.approx(optimiser.base_lr * (2 if two else 0.5))
    assert (settings.schedule.name, settings.schedule.warmup_epochs) == ("cosine", 15)
    assert (settings.momentum.value, settings.momentum.schedule) == (0.99, "cosine")
    heads = (settings.head, settings.predictor, settings.hidden, settings.dimension)
    assert heads == ("mocov3-projector", "mocov3-predictor", 4096, 256)
    first, second = settings.views.recipes()
    assert (first.blur, first.solarize, second.blur, second.solarize) == (1.0, 0.0, 0.1, 0.2)
    assert settings.loss.temperature == (1.0 if kind == "dsf" else 0.2)


@pytest.mark.parametrize("name", ["imagenet100-dsf", "imagenette-mocov3"])
@pytest.mark.parametrize("size", [128, 160, 224])
def test_one_key_changes_the_size_of_a_transformers_images(name, size, tmp_path):
    settings = resolve(load_recipe(name, [f"views.size={size}", "device=cpu"]))
    assert settings.encoder.options == {"image_size": size}
    config = tmp_path / "config.yaml"
    config.write_text(dump(settings))
    assert load_recipe(str(config)) == settings
    with pytest.raises(ValueError, match=f"image_size must be views.size, 96, .*got {size}"):
        load_recipe(str(config), ["views.size=96"])


@pytest.mark.parametrize(
    ("size", "local"), [(4, 4), (24, 12), (32, 16), (48, 16), (128, 64), (160, 80), (224, 112)]
)
def test_local_views_have_half_the_size(size, local):
    settings = load_recipe("cifar10-dsf", [f"views.size={size}", "views.local.count=2"])
    assert settings.views.local.size == local
    settings = load_recipe("cifar10-dsf", [f"views.size={size}", "views.local.size=4"])
    assert settings.views.local.size == 4


def test_a_transformers_views_are_whole_patches():
    with pytest.raises(ValueError, match="views.size: must be a multiple of the patches.*got 100"):
        load_recipe("imagenette-dsf", ["views.size=100"])


class TestBaseRate:
    def test_it_is_scaled_by_the_batch(self):
        changed = load_recipe("imagenet100-dsf", ["batch_size=256"])
        assert (changed.optimiser.base_lr, changed.optimiser.lr) == (5e-3, 5e-3)
        text = ["optimiser.base_lr=1e-3", "batch_size=64"]  # YAML reads 1e-3 as text
        assert load_recipe("imagenet100-dsf", text).optimiser.lr == 1e-3 * 64 / 256
        settings = Settings(optimiser=Optimiser(base_lr=0.1), batch_size=128)
        assert settings.optimiser.lr == 0.05

    def test_the_config_says_both(self, tmp_path):
        config = tmp_path / "config.yaml"
        config.write_text(dump(load_recipe("imagenet100-dsf")))
        written = yaml.safe_load(config.read_text())["optimiser"]
        assert (written["base_lr"], written["lr"]) == (0.005, 0.0025)
        with pytest.raises(ValueError, match="and 256 images a step it is 0.005; got 0.0025"):
            load_recipe(str(config), ["batch_size=256"])
        again = load_recipe(str(config), ["batch_size=256", "optimiser.lr=null"])
        assert again.optimiser.lr == 0.005

    def test_a_rate_of_ones_own_takes_its_place(self):
        with pytest.raises(ValueError, match="optimiser.lr: with optimiser.base_lr=0.005 and 128"):
            load_recipe("imagenet100-dsf", ["optimiser.lr=0.06"])
        overrides = ["optimiser.lr=0.06", "optimiser.base_lr=null"]
        assert load_recipe("imagenet100-dsf", overrides).optimiser.lr == 0.06

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("optimiser.base_lr=-1", "optimiser.base_lr: must be greater than 0; got -1"),
            ("optimiser.base_lr=x", "optimiser.base_lr: must be a valid number"),
            ("batch_size=x", "batch_size: must be a valid integer"),
            ("optimiser=sgd", "optimiser: has settings of its own"),
        ],
    )
    def test_wrong_values(self, override, message):
        with pytest.raises(ValueError, match=message):
            load_recipe("imagenet100-dsf", [override])


@pytest.mark.parametrize("alpha", [0.25, 1.0, 2.0])
def test_every_order_of_renyi(alpha):
    words = ["loss.mode=exact", "loss.divergence=renyi", f"loss.alpha={alpha}"]
    assert load_recipe("demo", words).loss.alpha == alpha


def test_overrides():
    overrides = ["optimiser.lr=1e-3", "encoder.options={stem: imagenet}", "loss.temperature=null"]
    settings = load_recipe("cifar10-dsf", overrides)
    assert settings.optimiser.lr == 1e-3
    assert settings.encoder.options == {"stem": "imagenet"}
    assert settings.loss.temperature is None
    assert settings.optimiser.weight_decay == 5e-4


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimiser.lr=-1", "optimiser.lr: must be greater than 0; got -1"),
        ("optimiser.lr=1e99", "optimiser.lr: must be less than or equal to 1000000"),
        ("optimizer.lr=1", "optimizer: no such setting; did you mean optimiser?"),
        ("views.counts=4", "views.counts: no such setting; did you mean views.count?"),
        ("lr=0.1", "lr: no such setting; did you mean optimiser.lr?"),
        ("optimiser.LR=1", "optimiser.LR: no such setting; did you mean optimiser.lr?"),
        ("size=8", "did you mean data.size or views.size or views.local.size?"),
        ("views.zzz=1", "views.zzz: no such setting; there are count, size, recipe"),
        ("head.x=1", "head.x: no such setting; head has none below it"),
        ("encoder=resnet18", "encoder: has settings of its own (encoder.name, encoder.options)"),
        ("lr", "an override is KEY=VALUE, such as optimiser.lr=0.03; got 'lr'"),
        ("data.limit=[", "data.limit: the value is not YAML; got '['"),
        ("compile=maybe", "compile: must be 'auto', True or False; got 'maybe'"),
        ("views.count=3", "views.count: must be even, as half of the views make each side; got 3"),
        ("views.recipe=x", "views.recipe: must be one of cifar, mocov3-1, mocov3-2; got 'x'"),
        ("views.options={x: 1}", "views.options: no such argument 'x'"),
        ("views.options={blur: 2}", "views.options: blur must be a probability in [0, 1]; got 2"),
        ("head=x", "head: must be one of mlp, mlp-bn, mocov3-projector, mocov3-predictor; got"),
        ("encoder.name=x", "encoder.name: must be one of auto, resnet18, "),
        ("batch_norm.splits=7", "batch_norm.splits: must divide the 1024 views (256 images x 4)"),
        ("batch_norm.sync=true", "batch_norm.sync: one group over all processes needs"),
        ("batch_norm.splits=1024", "into groups of at least 2; got 1024"),
        ("accumulate=3", "batch_size: must be a multiple of the 3 pieces"),
        ("loss.queue=0", "loss.queue: moco needs a queue of keys"),
        ("method=simclr", "loss.queue: simclr takes its negatives from the batch"),
        ("loss.name=cosine", "views.count: loss.name=cosine takes 2 views; got 8"),
        ("views.local.count=-1", "views.local.count: must be greater than or equal to 0; got -1"),
        ("views.local=6", "views.local: has settings of its own (views.local.count, views.local.s"),
        ("data.name=folder:caf\udce9", "data.name: must be UTF-8, as config.yaml keeps it; got"),
        ("views.options=5", "views.options: must be a mapping, such as {name: value}; got 5"),
        ("encoder.options=cifar", "encoder.options: must be a mapping, such as {name: value}; got"),
        ("views.local={count: 1, size: 40}", "views.local.size: must be at most views.size, 32;"),
        ("views.local.crop_scale=[0.5, 2]", "views.local: crop_scale must"),
        ("views.local.scale=[0.5, 1]", "views.local.scale: no such setting; "),
        ("loss.pooling=harmonic", "loss.pooling: must be 'arithmetic' or 'geometric'; got 'harm"),
        ("loss.divergence=renyi", "loss: divergence 'renyi' needs mode='exact'"),
        ("loss.alpha=0", "loss.alpha: must be greater than 0; got 0"),
        ("loss.alpha=.inf", "loss.alpha: must be a finite number; got inf"),
        ("schedule.warmup_epochs=300", "schedule.warmup_epochs: must be at most epochs, 250"),
        ("epochs=.inf", "epochs: must be a finite number; got inf"),
    ],
)
def test_bad_settings(override, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_recipe("cifar10-dsf", [override])
    assert "\n" not in str(caught.value)


def test_all_errors_at_once():
    with pytest.raises(ValueError, match="epochs: .*\nseed: |seed: .*\nepochs: ") as caught:
        load_recipe("cifar10-dsf", ["epochs=0", "seed=x"])
    assert len(str(caught.value).splitlines()) == 2


def test_contradiction_of_autotune():
    with pytest.raises(ValueError, match="autotune: true contradicts deterministic"):
        load_recipe("demo", ["deterministic=true", "autotune=true"])
    assert load_recipe("demo", ["deterministic=true"]).autotune == "auto"


def test_unknown_recipe_and_broken_files(tmp_path):
    with pytest.raises(ValueError, match="no recipe 'cifar10-dfs': did you mean cifar10-dsf"):
        load_recipe("cifar10-dfs")
    with pytest.raises(FileNotFoundError):
        load_recipe(str(tmp_path / "none.yaml"))
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ValueError, match="must hold settings"):
        load_recipe(str(tmp_path / "list.yaml"))
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(ValueError, match="bad.yaml is not YAML"):
        load_recipe(str(tmp_path / "bad.yaml"))


def test_yaml_executes_nothing(tmp_path):
    path = tmp_path / "evil.yaml"
    path.write_text(f"head: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n")
    with pytest.raises(ValueError, match="is not YAML"):
        load_recipe(str(path))
    assert not (tmp_path / "made").exists()


def test_processes_must_divide_batch_and_splits():
    settings = make_settings({"batch_norm": {"splits": 2}})
    check_batch(settings, 2)
    with pytest.raises(ValueError, match="batch_norm.splits: must be a multiple of the 4 proc"):
        check_batch(settings, 4)
    with pytest.raises(ValueError, match="batch_size: must be a multiple of the 3 processes"):
        check_batch(settings, 3)
    sync = make_settings({"batch_norm": {"splits": 1, "sync": True}})
    check_batch(sync, 4)
