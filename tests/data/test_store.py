import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dsf.data import ArraySource, Chunk, Source, Split, Store, writer
from dsf.data.progress import Progress

SIZE = 6


class Squashed(Source):
    """Images without labels, with the sizes they had."""

    description, classes, splits, fingerprint = "a test", (), {"train": 10}, "1"
    image_size = SIZE

    def __init__(self):
        generator = np.random.default_rng(2)
        self.images = generator.integers(0, 256, (10, SIZE, SIZE, 3), dtype=np.uint8)
        self.sizes = generator.integers(1, 500, (10, 2))

    def read(self, split, start, stop, advance):
        return Chunk(self.images[start:stop], sizes=self.sizes[start:stop])


@pytest.fixture
def arrays():
    generator = np.random.default_rng(1)
    return {
        split: (
            generator.integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8),
            generator.integers(0, 3, count),
        )
        for split, count in (("train", 23), ("test", 5))
    }


@pytest.fixture
def path(tmp_path, monkeypatch, arrays):
    monkeypatch.setattr(writer, "SHARD_BYTES", 7 * SIZE * SIZE * 3)
    path = tmp_path / "store"
    writer.build(path, "mini", ArraySource("a test", ("a", "b", "c"), arrays), Progress())
    return path


def channels_first(images):
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def test_what_was_written_is_read(path, arrays):
    store = Store(path, verify=True)
    assert store.counts == {"train": 23, "test": 5}
    assert store.image_size == SIZE
    assert store.classes == ("a", "b", "c")
    assert store.left_out == []
    assert sorted(file.name for file in path.iterdir()) == [
        "manifest.json",
        "test-00000.npy",
        "test-labels.npy",
        *(f"train-0000{number}.npy" for number in range(4)),
        "train-labels.npy",
    ]
    for name, (images, labels) in arrays.items():
        split = store.split(name)
        tensor = split.images()
        assert len(split) == len(images)
        assert split.nbytes == images.nbytes
        assert tensor.dtype == torch.uint8
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(tensor, channels_first(images))
        assert torch.equal(split.labels(), torch.from_numpy(labels))
        assert split.sizes() is None
        assert store.content[name].images == ArraySource("", "abc", arrays).content[name].images


def test_files_are_plain_numpy_arrays(path, arrays):
    parts = [np.load(path / f"train-0000{number}.npy") for number in range(4)]
    assert np.array_equal(np.concatenate(parts), arrays["train"][0])


def test_gather_picks_across_shards_in_the_order_asked(path, arrays):
    split = Store(path).split("train")
    indices = torch.tensor([22, 0, 6, 7, 7, 13, 14, 21])
    images = split.gather(indices)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, channels_first(arrays["train"][0])[indices])
    assert split.gather(indices[:0]).shape == (0, 3, SIZE, SIZE)
    for wrong in (-1, 23):
        with pytest.raises(ValueError, match=r"indices must be in \[0, 23\)"):
            split.gather(torch.tensor([0, wrong]))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_a_split_keeps_no_file_open(path):
    """ImageNet has 2,880 shards, and a process may have 1,024 files open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    split = Store(path).split("train")
    list(split.stream(torch.arange(23).split(4)))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_unlabelled_images_with_sizes(tmp_path):
    source = Squashed()
    writer.build(tmp_path / "store", "mini", source, Progress())
    split = Store(tmp_path / "store", verify=True).split("train")
    assert torch.equal(split.images(), channels_first(source.images))
    assert torch.equal(split.sizes(), torch.from_numpy(source.sizes))
    assert not split.labelled
    with pytest.raises(ValueError, match="split 'train' has no labels"):
        split.labels()


@pytest.mark.gpu
def test_on_the_gpu(path, arrays):
    split = Store(path).split("train")
    images = split.images("cuda")
    assert images.is_cuda
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images.cpu(), channels_first(arrays["train"][0]))
    assert split.labels("cuda").is_cuda


@pytest.mark.parametrize("file", ["train-00001.npy", "train-labels.npy"])
def test_a_damaged_byte_is_found_by_verify(path, file):
    data = bytearray((path / file).read_bytes())
    data[-1] ^= 1
    (path / file).write_bytes(data)
    Store(path)
    with pytest.raises(ValueError, match=f"{file} is damaged: sha256 .* the manifest says"):
        Store(path, verify=True)


def test_a_short_or_missing_file_is_found_at_once(path):
    file = path / "train-00001.npy"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"train-00001.npy has 883 bytes; .* says 884"):
        Store(path)
    file.unlink()
    with pytest.raises(ValueError, match="train-00001.npy is missing"):
        Store(path)


def test_files_of_another_shape_are_refused(path):
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["image_size"] = 5
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"holds uint8 \(7, 6, 6, 3\); the manifest says"):
        Store(path).split("train")


def edited(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


def test_manifests_that_are_none(path, tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a store: it has no manifest.json"):
        Store(tmp_path)
    entry = {"file": "../../secret", "bytes": 1, "count": 1, "sha256": "", "header": 0}
    split = {"count": 1, "shards": [entry], "labels": None, "sizes": None}
    edited(path, splits={"train": split})
    with pytest.raises(ValueError, match="files must lie in the store's folder"):
        Store(path)
    for splits in ({}, {"train": {}}, {"train": {**split, "count": 2}}, [1]):
        edited(path, splits=splits)
        with pytest.raises(ValueError, match="is not a complete manifest"):
            Store(path)
    edited(path, format=99)
    with pytest.raises(ValueError, match="format must be 1; got 99"):
        Store(path)
    (path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="manifest.json is not JSON"):
        Store(path)
    (path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="must hold a JSON object; got list"):
        Store(path)


def test_unknown_split(path):
    with pytest.raises(ValueError, match=r"split must be one of \('train', 'test'\); got 'val'"):
        Store(path).split("val")


def test_sources_are_checked(arrays):
    images, labels = arrays["train"]
    with pytest.raises(ValueError, match="labels must be in \\[0, 2\\)"):
        ArraySource("x", ("a", "b"), arrays)
    with pytest.raises(ValueError, match=r"23 images but labels of shape \(22,\)"):
        ArraySource("x", ("a", "b", "c"), {"train": (images, labels[1:])})
    with pytest.raises(ValueError, match=r"must be uint8 of shape \(N, size, size, 3\)"):
        ArraySource("x", ("a", "b", "c"), {"train": (images[..., :2], labels)})


def test_representations(path):
    assert "23 train, 5 test" in repr(Store(path))
    assert repr(Store(path).split("test")) == "Split('test', 5 images of 6 pixels)"
    assert isinstance(Store(path).split("test"), Split)
