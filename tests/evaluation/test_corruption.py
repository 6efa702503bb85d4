import json
import sys
from importlib.machinery import PathFinder

import numpy as np
import pytest
import torch

from dsf.data import load
from dsf.data.corruptions import CORRUPTIONS, corrupt
from dsf.evaluation.corruption import corruption_errors

SPLIT = load("embedded", "test")
IMAGES, LABELS = SPLIT.images()[::25], SPLIT.labels()[::25]
FEW = ("contrast", "gaussian_noise", "brightness")


def fixed_classifier():
    """Linear in coarse pixels: wrong often, but not by a rule that a corruption leaves alone."""
    weight = torch.randn(3 * 8 * 8, 10, generator=torch.Generator().manual_seed(0)).double()

    def predict(batch):
        coarse = torch.nn.functional.avg_pool2d(batch.double() / 255 - 0.45, 4).flatten(1)
        return (coarse @ weight.to(batch.device)).argmax(1)

    return predict


def by_hand(predict, name, severity, seed=0):
    wrong = predict(corrupt(IMAGES, name, severity, seed)) != LABELS
    return wrong.double().mean().item()


def test_the_means_are_those_of_all_types_and_severities():
    predict = fixed_classifier()
    result = corruption_errors(predict, IMAGES, LABELS, FEW, (1, 5), seed=2, batch_size=13)
    expected = {name: {s: by_hand(predict, name, s, seed=2) for s in (1, 5)} for name in FEW}
    assert result.errors == expected
    assert len({error for row in result.errors.values() for error in row.values()}) > 2
    assert result.by_type == pytest.approx(
        {n: sum(row.values()) / 2 for n, row in expected.items()}
    )
    assert result.mce == pytest.approx(sum(result.by_type.values()) / 3)
    clean = (predict(IMAGES) != LABELS).double().mean().item()
    assert result.clean_error == pytest.approx(clean)
    assert result.excess == pytest.approx(result.mce - clean)


def test_all_types_by_default_and_the_protocol_says_so():
    result = corruption_errors(fixed_classifier(), IMAGES, LABELS, severities=[1])
    assert tuple(result.errors) == CORRUPTIONS
    assert all(set(row) == {1} for row in result.errors.values())
    protocol = json.loads(json.dumps(result.protocol))
    assert protocol["types"] == list(CORRUPTIONS)
    assert protocol["severities"] == [1]
    assert protocol["seed"] == 0
    assert protocol["constants"] == "CIFAR-10-C"
    assert protocol["test_samples"] == 40


def test_batches_do_not_matter_and_have_one_size():
    sizes = []
    predict = fixed_classifier()

    def watched(batch):
        sizes.append(len(batch))
        return predict(batch)

    results = [
        corruption_errors(watched, IMAGES, LABELS, ("snow",), (3,), batch_size=size)
        for size in (7, 40, 1000)
    ]
    assert results[0][:5] == results[1][:5] == results[2][:5]
    assert set(sizes) == {7, 40}
    seeded = corruption_errors(watched, IMAGES, LABELS, ("snow",), (5,), seed=9)
    again = corruption_errors(watched, IMAGES, LABELS, ("snow",), (5,), seed=9)
    assert seeded == again


@pytest.fixture
def published(tmp_path):
    """What a corruption of ours would be as files, with other labels nowhere."""
    for name in FEW:
        parts = [corrupt(IMAGES, name, severity, seed=4) for severity in range(1, 6)]
        np.save(tmp_path / f"{name}.npy", torch.cat(parts).permute(0, 2, 3, 1).numpy())
    np.save(tmp_path / "labels.npy", LABELS.repeat(5).numpy().astype(np.uint8))
    return tmp_path


def test_published_files_take_the_place_of_made_ones(published):
    made = corruption_errors(fixed_classifier(), IMAGES, LABELS, FEW, seed=4)
    read = corruption_errors(
        fixed_classifier(), IMAGES, LABELS, FEW, published=published, batch_size=9
    )
    assert read.errors == made.errors
    assert read[:3] == made[:3]
    assert read.protocol["source"] == "published files"
    assert "seed" not in read.protocol


def test_a_missing_type_is_an_error_before_anything_is_computed(published):
    def never(batch):
        raise AssertionError("predicted")

    with pytest.raises(FileNotFoundError, match="lacks snow"):
        corruption_errors(never, IMAGES, LABELS, (*FEW, "snow"), published=published)


def test_missing_textures_are_an_error_before_anything_is_computed(monkeypatch, tmp_path):
    def never(batch):
        raise AssertionError("predicted")

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    with pytest.raises(FileNotFoundError, match="frost needs the textures"):
        corruption_errors(never, IMAGES, LABELS)


def test_published_labels_must_be_those_of_the_test_set(published):
    with pytest.raises(ValueError, match="must be those of the test images; got 40 labels"):
        corruption_errors(
            fixed_classifier(), IMAGES, LABELS.roll(1), ("contrast",), published=published
        )
    with pytest.raises(ValueError, match="must be those of the test images; .* the 39 given"):
        corruption_errors(
            fixed_classifier(), IMAGES[1:], LABELS[1:], ("contrast",), published=published
        )


def test_published_folders(tmp_path):
    from PIL import Image

    images = corrupt(IMAGES, "contrast", 2).permute(0, 2, 3, 1).numpy()
    for number, (image, label) in enumerate(zip(images, LABELS.tolist())):
        folder = tmp_path / "digital" / "contrast" / "2" / f"class{9 - label}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    arguments = (fixed_classifier(), IMAGES, LABELS, ("contrast",), (2,))
    made = corruption_errors(*arguments)
    names = [f"class{9 - label}" for label in range(10)]
    read = corruption_errors(*arguments, published=tmp_path, classes=names, batch_size=11)
    assert read.mce == pytest.approx(made.mce)
    with pytest.raises(ValueError, match="must have the classes of the test images, 10; got 4"):
        corruption_errors(*arguments, published=tmp_path, classes=names[:4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ()}, r"names must be one or more, each once; got \(\)"),
        ({"names": "snow"}, "names must be one or more, each once; got 'snow'"),
        ({"names": ("fog", "fog")}, "names must be one or more, each once"),
        ({"names": ("rain",)}, "corruption must be one of .*; got 'rain'"),
        ({"severities": ()}, "severities must be one or more"),
        ({"severities": (0,)}, "severity must be one of .*; got 0"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "images must be uint8 .*, at least one"),
        ({"images": IMAGES.float()}, "images must be uint8 .*; got torch.float32"),
        ({"labels": LABELS[:3]}, r"labels must be integers of shape \(40,\)"),
        ({"labels": LABELS.double()}, "labels must be integers .*; got torch.float64"),
        ({"batch_size": 0}, "batch_size must be >= 1; got 0"),
        ({"predict": lambda x: x.float()}, r"predict must give integers of shape \(40,\); got"),
        ({"predict": lambda x: x.new_zeros(40).double()}, "predict must give integers .*float64"),
        ({"predict": lambda x: [0] * 40}, "predict must give integers .*; got list"),
    ],
)
def test_wrong_arguments(arguments, message):
    usual = {"predict": fixed_classifier(), "images": IMAGES, "labels": LABELS, "names": FEW}
    with pytest.raises(ValueError, match=message):
        corruption_errors(**(usual | arguments))


@pytest.mark.gpu
def test_the_gpu_gives_the_same_errors():
    predict = fixed_classifier()
    on_cpu = corruption_errors(predict, IMAGES, LABELS, severities=(1, 5))
    on_gpu = corruption_errors(predict, IMAGES, LABELS, severities=(1, 5), device="cuda")
    assert on_gpu.mce == pytest.approx(on_cpu.mce, abs=0.002)
    again = corruption_errors(predict, IMAGES.cuda(), LABELS, severities=(1, 5), batch_size=16)
    assert again.errors == on_gpu.errors
