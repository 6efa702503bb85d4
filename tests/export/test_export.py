import dataclasses
import json
import shutil

import exports
import numpy
import pytest
import timm
import torch
import yaml
from huggingface_hub import ModelCard
from PIL import Image
from safetensors import safe_open

import dsf
from dsf.evaluation import LabelledImages
from dsf.evaluation.fixed_view import FixedView
from dsf.experiments import evaluate, load_run
from dsf.experiments.exported import read_source
from dsf.export import export_run, to_timm
from dsf.export.card import model_card
from dsf.export.export import TARGETS
from dsf.files import read_json

# Who loads which, and by which libraries the card says so.
CASES = [
    ("small", "timm", ["timm"]),
    ("small", "huggingface", ["dsf"]),
    ("small", "onnx", ["onnxruntime"]),
    ("cifar", "timm", ["timm"]),
    ("cifar", "torchvision", ["torchvision"]),
    ("imagenet", "timm", ["timm"]),
    ("imagenet", "torchvision", ["torchvision"]),
    ("vit", "timm", ["timm"]),
    ("vit", "torchvision", ["torchvision"]),
    ("vit", "huggingface", ["dsf", "timm", "transformers"]),
    ("vit", "onnx", ["onnxruntime"]),
    ("timm", "timm", ["timm"]),
    ("torchvision", "torchvision", ["torchvision"]),
    ("torchvision", "huggingface", ["dsf"]),
]
FILES = {
    "timm": {"README.md", "config.json", "model.safetensors"},
    "torchvision": {"README.md", "model.safetensors"},
    "huggingface": {"README.md", "config.json", "model.safetensors"},
    "onnx": {"README.md", "model.onnx"},
}


@torch.no_grad()
def trained_features(run, images):
    """What the run's own encoder makes of images."""
    method = load_run(run, "cpu")[1]
    return method.encoder.eval()(images)


@pytest.mark.parametrize(("kind", "to", "libraries"), CASES)
def test_the_code_of_the_card_gives_the_features_of_the_run(
    run_of, tmp_path, monkeypatch, kind, to, libraries
):
    run = run_of(kind)
    folder, difference = export_run(run, to, tmp_path / "out")
    assert {path.name for path in folder.iterdir()} == FILES[to]
    assert 0 <= difference <= 1e-4
    images = torch.randn(3, 3, 32, 32)
    expected = trained_features(run, images)
    assert expected.std(dim=0).max() > 1e-3
    card = (folder / "README.md").read_text()
    monkeypatch.chdir(folder)
    *found, _ = exports.blocks(card)
    assert len(found) == len(libraries)
    for code, library in zip(found, libraries):
        assert f"With {library}, in this folder" in card
        names = exports.run_block(code)
        assert names["features"].shape == (2, expected.shape[1])
        given = images.numpy() if to == "onnx" else images
        with torch.no_grad():
            features = torch.as_tensor(names["encode"](given))
        torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)


def test_timm_takes_the_folder_by_its_name(run_of, tmp_path):
    """With the image size and normalisation of the run, and safetensors that hold no pickle."""
    run = run_of("vit")
    folder, _ = export_run(run, "timm", tmp_path / "out")
    if tuple(map(int, timm.__version__.split(".")[:3])) < (1, 0, 26):
        pytest.skip("before 1.0.26 timm reads no safetensors in a folder")
    model = timm.create_model(f"local-dir:{folder}", pretrained=True)
    known = timm.data.resolve_model_data_config(model)
    assert list(known["input_size"]) == [3, 32, 32]
    assert list(known["mean"]) == [0.4914, 0.4822, 0.4465]
    assert model.blocks[0].attn.num_heads == 12
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    other = timm.create_model(
        "vit_small_patch16_224", num_classes=0, img_size=32, num_heads=12, depth=2,
        checkpoint_path=str(folder / "model.safetensors"),
    )  # fmt: skip
    for name, tensor in model.state_dict().items():
        assert tensor.equal(other.state_dict()[name])


def test_transformers_reads_the_processor_too(run_of, tmp_path):
    from transformers import AutoImageProcessor

    folder, _ = export_run(run_of("vit"), "huggingface", tmp_path / "out")
    processor = AutoImageProcessor.from_pretrained(folder)
    assert tuple(processor.data_config["mean"]) == (0.4914, 0.4822, 0.4465)


def test_from_pretrained(run_of, tmp_path):
    run = run_of("cifar")
    folder, _ = export_run(run, "huggingface", tmp_path / "out")
    encoder = dsf.from_pretrained(folder)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert encoder(images).equal(trained_features(run, images))
    assert encoder.num_features == 512
    # As evaluations would show them: its views had 8 pixels, the images have 32.
    assert encoder.pretrained_cfg["input_size"] == (3, 32, 32)
    assert encoder.pretrained_cfg["std"] == (0.2023, 0.1994, 0.2010)
    assert not encoder.training
    assert not any("split" in type(module).__name__.lower() for module in encoder.modules())


@pytest.fixture(scope="module")
def evaluated(run_of, tmp_path_factory):
    run = shutil.copytree(run_of("small"), tmp_path_factory.mktemp("evaluated") / "my-run")
    evaluate(run, ["knn", "linear"], "cpu")
    evaluate(run, ["knn"], "cpu", random=True)
    kept = read_json(run / "results.json")
    protocol = kept["knn"]["protocol"] | {"name": "geometry"}
    kept["geometry"] = {"protocol": protocol, "backbone_alignment": 0.4}  # takes minutes
    (run / "results.json").write_text(json.dumps(kept))
    return run


@pytest.fixture
def results(evaluated):
    return read_json(evaluated / "results.json")


def test_the_card_tells_what_the_run_reached(evaluated, results, tmp_path):
    folder, _ = export_run(evaluated, "huggingface", tmp_path / "out")
    text = (folder / "README.md").read_text()
    assert "\n# my-run\n" in text
    after, before = (results[name]["backbone"] for name in ("knn", "untrained-knn"))
    assert f"| knn | backbone | {100 * after:.2f} % | {100 * before:.2f} % |" in text
    accuracy = results["linear"]["accuracy"]
    assert f"| linear | accuracy | {100 * accuracy:.2f} % |  |" in text
    assert "geometry" not in text
    provenance = read_json(evaluated / "environment.json")
    for part in (provenance["commit"], provenance["packages"]["torch"], "step-00000002"):
        assert part in text
    assert results["knn"]["protocol"]["checkpoint_sha256"] in text
    assert results["knn"]["protocol"]["data"]["content"]["train"]["images"][:16] in text
    assert "| loss | dsf, mode paper, temperature 0.5 instead of 1 |" in text
    assert "| temperature |" not in text
    assert "In the evaluations images were seen whole.\n" in text
    assert "not finished" not in text
    # 32 pixels is what it was evaluated with; its views had 8.
    assert read_json(folder / "config.json")["dsf"]["image_size"] == 32


def test_before_training_is_left_out_where_nothing_is_known_of_it(evaluated, results):
    source = read_source(evaluated)
    trained = {k: v for k, v in source.results.items() if not k.startswith("untrained-")}
    text = model_card(dataclasses.replace(source, results=trained), TARGETS["timm"])
    assert "before training" not in text
    assert "| evaluation | measure | value |\n| --- | --- | --- |\n" in text
    after = results["knn"]["backbone"]
    assert f"| knn | backbone | {100 * after:.2f} % |\n" in text


def test_results_of_images_that_changed(evaluated):
    source = read_source(evaluated)
    first = source.results["knn"]["protocol"]["data"]["content"]
    known = dataclasses.replace(source, environment={"images_sha256": first["train"]["images"]})
    text = model_card(known, TARGETS["timm"])
    assert "Measured on other images" not in text
    assert f"| evaluated on | sha256 of the images: train {first['train']['images'][:16]}" in text
    for name in ("linear", "untrained-knn"):
        content = known.results[name]["protocol"]["data"]["content"]
        content["train"]["images"] = "c0ffee" + "0" * 58
    text = model_card(known, TARGETS["timm"])
    note = "Measured on other images than the run learned from, since they have changed: "
    assert f"\n\n{note}knn before training; linear.\n\n" in text
    (provenance,) = (line for line in text.splitlines() if line.startswith("| evaluated on |"))
    assert f"knn: sha256 of the images: train {first['train']['images'][:16]}, " in provenance
    assert "; linear: sha256 of the images: train c0ffee0000000000, " in provenance


def test_the_hub_reads_the_card(evaluated, results, tmp_path):
    folder, _ = export_run(evaluated, "huggingface", tmp_path / "out")
    data = ModelCard.load(folder / "README.md").data
    assert data.pipeline_tag == "image-feature-extraction"
    assert data.library_name == "dsf-ssl"
    shown = {(item.dataset_name, item.metric_name): item.metric_value for item in data.eval_results}
    value = round(100 * results["linear"]["accuracy"], 2)
    assert shown["embedded", "linear, accuracy (%)"] == value
    _, metadata, _ = (folder / "README.md").read_text().split("---\n", 2)
    (of_data,) = yaml.safe_load(metadata)["model-index"][0]["results"]  # one data set
    names = [metric["name"] for metric in of_data["metrics"]]
    assert names == [
        "knn, backbone (%)",
        "knn, projection (%)",
        "linear, accuracy (%)",
        "linear, mean per class (%)",
        "linear, top5 (%)",
    ]


def test_results_of_another_checkpoint_stay_out(evaluated, results, tmp_path):
    run = shutil.copytree(evaluated, tmp_path / "run")
    results["knn"]["protocol"]["checkpoint_sha256"] = "0" * 64
    (run / "results.json").write_text(json.dumps(results))
    text = model_card(read_source(run), TARGETS["timm"])
    assert "| knn |" not in text
    assert "| linear |" in text


def test_a_private_path_stays_private(evaluated):
    source = read_source(evaluated)
    place = "folder:/home/me/secret/photos"
    settings = source.settings.model_copy(
        update={"data": source.settings.data.model_copy(update={"name": place})}
    )
    command = f"dsf train demo data.name={place} -o {evaluated}"
    environment = source.environment | {"command": command}
    config = source.config.replace("name: embedded", f"name: {place}")
    other = json.loads(json.dumps(source.results["knn"]))
    other["protocol"]["data"]["name"] = "folder:/home/me/secret/photos-of-others"
    results = {"knn@folder:/home/me/secret/photos-of-others:32": other}
    changed = dataclasses.replace(
        source, settings=settings, environment=environment, config=config, results=results
    )
    text = model_card(changed, TARGETS["timm"])
    assert "secret" not in text
    assert "| knn@folder:photos-of-others:32 | backbone |" in text
    assert "| data | folder:photos |" in text  # and not the hashes of the others
    assert str(evaluated.parent) not in text
    assert "folder:photos" in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("folder:shots", "folder:shots"),
        ("folder:some/shots", "folder:shots"),
        ("folder:/home/me/shots/", "folder:shots"),
    ],
)
def test_a_folder_is_named_once(evaluated, name, shown):
    source = read_source(evaluated)
    data = source.settings.data.model_copy(update={"name": name})
    changed = dataclasses.replace(
        source,
        settings=source.settings.model_copy(update={"data": data}),
        environment={"command": f"dsf train demo data.name={name}"},
        config=source.config.replace("name: embedded", f"name: {name}"),
    )
    text = model_card(changed, TARGETS["timm"])
    assert f"`dsf train demo data.name={shown}`" in text
    assert f"  name: {shown}\n" in text
    assert "folder:folder" not in text


def test_the_card_says_that_it_learned_from_a_part_of_the_images(run_of):
    source = read_source(run_of("small"))
    text = model_card(source, TARGETS["timm"])
    assert "without labels on at most 32 of the images of CIFAR-10 that come with dsf for" in text
    data = source.settings.data.model_copy(update={"limit": None})
    settings = source.settings.model_copy(update={"data": data})
    text = model_card(dataclasses.replace(source, settings=settings), TARGETS["timm"])
    assert "without labels on the images of CIFAR-10 that come with dsf for" in text


def test_without_evaluations_nothing_is_said_of_them(run_of):
    text = model_card(read_source(run_of("small")), TARGETS["timm"])
    assert "In the evaluations" not in text
    assert "None yet: `dsf eval` adds them" in text


@pytest.mark.parametrize(
    ("seen", "share", "words"),
    [
        ("whole, resized", 1.0, "seen whole, resized."),
        ("the central square of 7/8 of the shorter side", 0.875, "seen as the central square of"),
    ],
)
def test_images_are_shown_as_evaluations_did(evaluated, seen, share, words):
    source = read_source(evaluated)
    for entry in source.results.values():
        entry["protocol"]["test_images"] = seen
    model = to_timm.Model("resnet18", {})
    assert to_timm.make_config(source, model)["pretrained_cfg"]["crop_pct"] == share
    text = model_card(source, TARGETS["timm"])
    assert f"In the evaluations images were {words}" in text
    assert 'take `images = torch.from_numpy(read("photo.jpg"))[None]`' in text


@pytest.mark.parametrize("squashed", [False, True])
def test_the_card_reads_a_file_as_evaluations_did(evaluated, tmp_path, squashed):
    height, width = (50, 80) if squashed else (64, 64)
    waves = numpy.sin(numpy.arange(height * width * 3).reshape(height, width, 3) / 900)
    picture = Image.fromarray((127 + 120 * waves).astype("uint8"))
    picture.save(tmp_path / "photo.png")
    stored = numpy.array(picture.resize((64, 64), Image.Resampling.BILINEAR))
    pixels = torch.from_numpy(stored).permute(2, 0, 1)[None]
    sizes = torch.tensor([[height, width]]) if squashed else None
    images = LabelledImages(pixels, torch.zeros(1, dtype=torch.int64), sizes)
    source = read_source(evaluated)
    view = FixedView(images, source.image_size)
    for entry in source.results.values():
        entry["protocol"]["test_images"] = view.summary
    names = exports.run_block(exports.blocks(model_card(source, TARGETS["timm"]))[-1])
    found = torch.from_numpy(names["read"](tmp_path / "photo.png"))
    expected = view(pixels, sizes)[0].float() / 255
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 0.05


def test_a_run_that_is_not_finished(run_of, tmp_path):
    """As if it had been stopped after its one epoch of three."""
    run = shutil.copytree(run_of("small"), tmp_path / "run")
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("epochs: 1\n", "epochs: 3\n", 1))
    said = []
    folder, _ = export_run(run, "timm", say=said.append)
    assert said[0].startswith(f"note: {run} is at step 2 of 6, not at its end; ")
    text = (folder / "README.md").read_text()
    assert "for 3 epochs, of which it has come to step 2 of 6, with DSF" in text
    assert "| not finished | step 2 of 6 |" in text


def test_features_that_differ_are_not_exported(run_of, tmp_path, monkeypatch):
    write = to_timm.write_weights

    def spoil(folder, weights):
        write(folder, {n: t + 0.1 if n == "layer4.0.bn2.bias" else t for n, t in weights.items()})

    monkeypatch.setattr(to_timm, "write_weights", spoil)
    with pytest.raises(ValueError, match="gives other features than the run's encoder, by 0.0"):
        export_run(run_of("small"), "timm", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_default_folder_and_an_empty_one(run_of, tmp_path):
    run = shutil.copytree(run_of("small"), tmp_path / "run")
    assert export_run(run, "timm").folder == run / "exports" / "timm"
    (tmp_path / "empty").mkdir()
    assert export_run(run, "timm", tmp_path / "empty").folder == tmp_path / "empty"
    assert not list(tmp_path.glob("*.tmp"))
    (tmp_path / "killed.tmp").mkdir()
    (tmp_path / "killed.tmp" / "half").write_text("")
    folder = export_run(run, "timm", tmp_path / "killed").folder
    assert {path.name for path in folder.iterdir()} == FILES["timm"]


def test_the_size_is_that_of_evaluations(run_of, tmp_path):
    run = shutil.copytree(run_of("small"), tmp_path / "run")

    def size(**results):
        (run / "results.json").write_text(json.dumps(results))
        return read_source(run).image_size

    def seen(image_size, data="embedded"):
        return {"protocol": {"image_size": image_size, "data": {"name": data}}}

    assert size() == 32
    assert size(**{"knn k=5": seen(20), "knn size=16": seen(16)}) == 20
    assert size(**{"knn size=16": seen(16), "knn@pets": seen(64, "pets")}) == 32


def test_an_encoder_that_the_library_cannot_hold(run_of, tmp_path):
    message = r"torchvision makes has other tensors .*: nothing is exported \(.*ResNet"
    with pytest.raises(ValueError, match=message):
        export_run(run_of("average"), "torchvision", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
