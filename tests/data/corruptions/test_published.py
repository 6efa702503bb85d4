import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from dsf.data.corruptions import load_published


@pytest.fixture
def cifar(tmp_path):
    """Four images at five severities, of two types."""
    generator = np.random.default_rng(0)
    arrays = generator.integers(0, 256, (2, 20, 32, 32, 3), dtype=np.uint8)
    for name, array in zip(("fog", "snow"), arrays):
        np.save(tmp_path / f"{name}.npy", array)
    np.save(tmp_path / "labels.npy", np.tile(np.array([3, 1, 4, 1], np.uint8), 5))
    return tmp_path, arrays


@pytest.fixture
def imagenet(tmp_path):
    for name in ("noise/gaussian_noise", "fog"):
        for severity in (1, 2):
            for number, label in enumerate(("n03", "n01", "n02")):
                folder = tmp_path / name / str(severity) / label
                folder.mkdir(parents=True)
                for index in range(2):
                    colour = (50 * severity, 60 * number, 100 * index)
                    Image.new("RGB", (224, 224), colour).save(folder / f"{index}.JPEG", quality=95)
    return tmp_path


def test_arrays(cifar):
    folder, arrays = cifar
    for name, array in zip(("fog", "snow"), arrays):
        for severity in range(1, 6):
            files = load_published(folder, name, severity)
            assert len(files) == 4
            assert files.labels.tolist() == [3, 1, 4, 1]
            assert files.labels.dtype == torch.int64
            images = files.read(0, 4)
            assert images.dtype == torch.uint8
            expected = array[4 * (severity - 1) : 4 * severity]
            assert np.array_equal(images.permute(0, 2, 3, 1).numpy(), expected)
            assert torch.equal(files.read(1, 3), images[1:3])
            assert len(files.read(2, 9)) == 2  # never a piece of the next severity


@pytest.mark.parametrize("name", ["gaussian_noise", "fog"])
def test_folders(imagenet, name):
    files = load_published(imagenet, name, 2)
    assert files.labels.tolist() == [0, 0, 1, 1, 2, 2]
    images = files.read(0, 6).double()
    assert images.shape == (6, 3, 224, 224)
    means = images.mean((2, 3))
    expected = [[100, 60 * number, 100 * index] for number in (1, 2, 0) for index in (0, 1)]
    np.testing.assert_allclose(means, expected, atol=3)
    assert torch.equal(files.read(2, 5).double(), images[2:5])
    some = load_published(imagenet, name, 1, classes=["n03", "n02"], size=64)
    assert some.labels.tolist() == [0, 0, 1, 1]
    assert some.read(0, 1).shape == (1, 3, 64, 64)
    assert some.read(0, 1)[0, 0].double().mean() == pytest.approx(50, abs=3)


def test_hidden_files_and_folders_are_none_of_it(imagenet):
    """What notebooks keep beside a folder would be its first class, and shift all labels."""
    kept = imagenet / "fog/1/.ipynb_checkpoints"
    shutil.copytree(imagenet / "fog/1/n01", kept)
    (imagenet / "fog/1/n01/._0.JPEG").write_bytes(b"of a Mac")
    files = load_published(imagenet, "fog", 1)
    assert files.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert len(files.read(0, 6)) == 6


def test_missing(cifar, imagenet):
    folder, _ = cifar
    for arguments, message in (
        ((folder / "none", "fog", 1), "none of published corruptions does not exist"),
        ((folder, "frost", 1), r"lacks frost: neither frost.npy \(CIFAR-10-C\) nor frost/1/CLASS/"),
        ((imagenet, "gaussian_noise", 3), "gaussian_noise has no severity 3"),
        ((imagenet, "gaussian_noise", 1, ["n01", "n7"]), "lacks 1 of 2 classes, the first n7"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            load_published(*arguments)
    (folder / "labels.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"has fog.npy but lacks its labels, labels.npy"):
        load_published(folder, "fog", 1)


def test_empty_folders(imagenet):
    for path in (imagenet / "fog" / "1" / "n02").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match="n02 has no images"):
        load_published(imagenet, "fog", 1)
    (imagenet / "fog" / "5").mkdir()
    with pytest.raises(FileNotFoundError, match="5 has no class folders"):
        load_published(imagenet, "fog", 5)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((20, 32, 32, 3)), r"must hold uint8 of shape \(50000, .*; got float64"),
        (
            np.zeros((20, 32, 32), np.uint8),
            r"must hold uint8 .*; got uint8 of shape \(20, 32, 32\)",
        ),
        (np.zeros((25, 32, 32, 3), np.uint8), "labels.npy must hold 25 integers, one an image of"),
        (np.zeros((0, 32, 32, 3), np.uint8), "must hold uint8"),
        (np.zeros((), np.uint8), "must hold uint8"),
    ],
)
def test_wrong_arrays(cifar, array, message):
    folder, _ = cifar
    np.save(folder / "fog.npy", array)
    with pytest.raises(ValueError, match=message):
        load_published(folder, "fog", 1)


def test_severities_of_different_length(cifar):
    folder, arrays = cifar
    np.save(folder / "fog.npy", arrays[0, :18])
    np.save(folder / "labels.npy", np.zeros(18, np.int64))
    with pytest.raises(ValueError, match="as many images for each of 5 severities; got 18"):
        load_published(folder, "fog", 1)


def test_broken_files(cifar, imagenet):
    folder, _ = cifar
    whole = (folder / "fog.npy").read_bytes()
    for content in (b"", b"not an array", whole[:1000]):
        (folder / "fog.npy").write_bytes(content)
        with pytest.raises(ValueError, match="fog.npy is not a whole array of numbers"):
            load_published(folder, "fog", 1)
    (imagenet / "noise/gaussian_noise/1/n02/0.JPEG").write_bytes(b"no picture")
    files = load_published(imagenet, "gaussian_noise", 1)
    with pytest.raises(ValueError, match=r"n02/0.JPEG is not an image"):
        files.read(0, 6)


def test_pickles_are_not_run(cifar):
    class Bomb:
        def __reduce__(self):
            return exec, ("raise SystemExit('was run')",)

    folder, _ = cifar
    np.save(folder / "fog.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="is not a whole array of numbers"):
        load_published(folder, "fog", 1)


def test_wrong_names(cifar):
    for arguments, message in (
        (("rain", 1), "corruption must be one of"),
        (("fog", 0), "severity"),
    ):
        with pytest.raises(ValueError, match=message):
            load_published(cifar[0], *arguments)
