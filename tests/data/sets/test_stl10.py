import made_up
import numpy as np
import pytest
from PIL import Image

from dsf.data import prepare, writer


@pytest.fixture
def folder(tmp_path, any_count):
    return made_up.stl10(tmp_path).folder


def test_pixels_lie_where_torchvision_has_them(folder, monkeypatch):
    from torchvision.datasets import STL10, stl10

    monkeypatch.setattr(stl10, "check_integrity", lambda *_: True)
    monkeypatch.setattr(writer, "SHARD_BYTES", 2 * 96 * 96 * 3)
    noise = np.random.default_rng(0).integers(0, 256, (3, 3, 96, 96), dtype=np.uint8)
    (folder / "train_X.bin").write_bytes(noise.tobytes())
    split = prepare("stl10", str(folder)).split("train")
    assert split.image_size == 96
    assert split.sizes() is None  # nothing was squashed
    expected = [np.asarray(image) for image, _ in STL10(folder.parent, "train")]
    assert np.array_equal(split.images().permute(0, 2, 3, 1), expected)
    small = prepare("stl10", str(folder), size=20).split("train")
    squashed = [
        np.asarray(Image.fromarray(image).resize((20, 20), Image.Resampling.BICUBIC))
        for image in expected
    ]
    assert np.array_equal(small.images().permute(0, 2, 3, 1), squashed)
    assert small.sizes().tolist() == [[96, 96]] * 3


def test_the_unlabelled_split_has_no_labels(folder):
    store = prepare("stl10", str(folder))
    assert store.counts == {"train": 3, "test": 2, "unlabelled": 4}
    assert not store.split("unlabelled").labelled
    with pytest.raises(ValueError, match="split 'unlabelled' has no labels"):
        store.split("unlabelled").labels()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("test_X.bin", b"x" * 27_649, "must have a multiple of 27648 bytes; got 27649"),
        ("test_X.bin", b"", "must have a multiple of 27648 bytes; got 0"),
        ("test_y.bin", b"\1", "test_y.bin must have 2 labels; got 1"),
        ("test_y.bin", b"\1\4", r"test_y.bin: labels must be in \[1, 3\]; got 1 to 4"),
        ("test_y.bin", b"\0\1", r"test_y.bin: labels must be in \[1, 3\]; got 0 to 1"),
    ],
)
def test_damaged_files(folder, file, content, message):
    (folder / file).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        prepare("stl10", str(folder))
