"""What all these data sets share: how they are found, read, verified and described."""

import shutil

import made_up
import miniature
import numpy as np
import pytest
import torch

from dsf.cli import main
from dsf.data import BrokenImagesError, load, open_store, prepare, registry
from dsf.data.sets import SETS

MEAN_PER_CLASS = {"aircraft", "caltech101", "flowers102", "pets"}
NAMES = [name for name in made_up.ALL if name != "imagenet"]  # a thousand classes take a while
PICTURES = [name for name in NAMES if name != "stl10"]
SIDE = 6

# data set -> torchvision's class, and the name of the split in it
TORCHVISION = {
    "aircraft": ("FGVCAircraft", {"train": "train", "validation": "val", "test": "test"}),
    "dtd": ("DTD", {"train": "train", "validation": "val", "test": "test"}),
    "flowers102": ("Flowers102", {"train": "train", "validation": "val", "test": "test"}),
    "food101": ("Food101", {"train": "train", "test": "test"}),
    "imagenette": ("Imagenette", {"train": "train", "test": "val"}),
    "pets": ("OxfordIIITPet", {"train": "trainval", "test": "test"}),
    "stl10": ("STL10", {"train": "train", "test": "test", "unlabelled": "unlabeled"}),
}


def pairs(split):
    """(label, colour) of every image; fails on an image of more than one colour."""
    images = split.images()
    assert torch.equal(images, images[:, :, :1, :1].expand_as(images))
    colours = [tuple(colour) for colour in images[:, :, 0, 0].tolist()]
    labels = split.labels().tolist() if split.labelled else [None] * len(split)
    return list(zip(labels, colours))


def assert_read(store, expected):
    assert {split: pairs(store.split(split)) for split in store.counts} == expected.splits
    assert len(store.classes) == len(expected.classes)
    assert all(want in ("", have) for have, want in zip(store.classes, expected.classes))


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize("name", NAMES)
def test_prepared_by_the_command(name, tmp_path, root, capsys):
    expected = made_up.ALL[name](tmp_path / "sets")
    command = ["data", "prepare", name, "--size", str(SIDE)]
    assert main([*command, "--source", str(expected.folder)]) == 0
    output = capsys.readouterr().out
    assert f"images in {root}/{name}-{SIDE}, verified" in output
    assert f"from {expected.folder}" in output
    store = open_store(name, SIDE)
    assert_read(store, expected)
    assert store.image_size == SIDE
    own = [96, 96] if name == "stl10" else [5, 7]
    assert store.split("train").sizes().tolist() == [own] * store.counts["train"]
    if store.note:
        assert f"  {store.note}\n" in output
    assert main(["data", "list"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(name)]
    assert line.endswith(f" {name}-{SIDE}")


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision_reads_the_same(name, tmp_path, monkeypatch):
    from torchvision import datasets

    module, splits = TORCHVISION[name]
    expected = made_up.ALL[name](tmp_path)
    # Made up files have other checksums.
    for checks in (datasets.flowers102, datasets.stl10):
        monkeypatch.setattr(checks, "check_integrity", lambda *_: True)
    store = prepare(name, str(tmp_path), size=SIDE)
    for split, theirs in splits.items():
        other = getattr(datasets, module)(tmp_path, split=theirs)
        found = [(label, tuple(np.asarray(image)[0, 0].tolist())) for image, label in other]
        if split == "unlabelled":
            found = [(None, colour) for _, colour in found]
        assert pairs(store.split(split)) == found
        classes = [c if isinstance(c, str) else c[0] for c in other.classes]
        assert list(store.classes) == classes
    assert_read(store, expected)


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize("name", NAMES)
def test_found_where_data_sets_lie(name, root):
    made_up.ALL[name](root)
    store = prepare(name, size=SIDE)
    assert store.manifest["source"].startswith(str(root))
    assert load(name).image_size == SIDE


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize("name", NAMES)
def test_every_missing_part_is_named(name, tmp_path):
    expected = made_up.ALL[name](tmp_path / "sets")
    layout = __import__(f"dsf.data.sets.{name.replace('-', '_')}", fromlist=["_LAYOUT"])._LAYOUT
    assert layout.parts
    for part in layout.parts:
        aside = tmp_path / "aside"
        shutil.move(expected.folder / part, aside)
        with pytest.raises(ValueError, match=f"does not hold {name}: it has no {part}; must have "):
            prepare(name, str(expected.folder), size=SIDE)
        shutil.move(aside, expected.folder / part)
    prepare(name, str(expected.folder), size=SIDE)


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize("name", PICTURES)
def test_truncated_and_lost_images(name, tmp_path, capsys):
    expected = made_up.ALL[name](tmp_path)
    listed = prepare(name, str(expected.folder), size=SIDE)
    total = sum(listed.counts.values())
    shutil.rmtree(listed.path)
    first, last = listed_files(name, expected)
    first.write_bytes(miniature.encoded("JPEG")[:-1000])
    if name in ("caltech101", "imagenette"):  # these have no list to miss it from
        last.write_bytes(b"")
    else:
        last.unlink()
    command = ["data", "prepare", name, "--source", str(expected.folder), "--size", str(SIDE)]
    assert main(command) == 1
    errors = capsys.readouterr().err
    assert f"dsf: 2 of {total} images cannot be read" in errors
    assert f"{first.relative_to(expected.folder).as_posix()}: is truncated or damaged" in errors
    reason = "is empty" if last.exists() else "cannot be opened: No such file"
    assert f"{last.relative_to(expected.folder).as_posix()}: {reason}" in errors
    assert main([*command, "--skip-broken"]) == 0
    assert sum(open_store(name, SIDE).counts.values()) == total - 2


def listed_files(name, expected):
    """The first training image and the last test image."""
    source = registry.DATASETS[name].open_source(
        registry.Request(str(expected.folder), SIDE, expected.folder, registry.Progress())
    )
    return source.items["train"][0].path, source.items["test"][-1].path


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", NAMES)
def test_an_incomplete_data_set_is_refused(name, tmp_path):
    expected = made_up.ALL[name](tmp_path)
    split, count = next(iter(registry.DATASETS[name].splits.items()))
    have = len(expected.splits[split])
    with pytest.raises(
        ValueError, match=f"does not hold all of {name}: {have} {split} images, must be {count:,}"
    ):
        prepare(name, str(tmp_path))


@pytest.mark.usefixtures("any_count")
def test_wrong_sources(tmp_path):
    archive = tmp_path / "images.tar.gz"
    archive.write_bytes(b"x")
    with pytest.raises(ValueError, match=r"images.tar.gz is a file: unpack it, and give the folde"):
        prepare("pets", str(archive))
    with pytest.raises(FileNotFoundError, match="source nowhere does not exist"):
        prepare("pets", "nowhere")
    with pytest.raises(ValueError, match="does not hold pets: it has no images; must have images,"):
        prepare("pets", str(tmp_path))


@pytest.mark.usefixtures("any_count")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("imagenet", "get it from https://image-net.org"),
        ("imagenet100", "get it from https://image-net.org"),
        ("tiny-imagenet", "download http://cs231n.stanford.edu/tiny-imagenet-200.zip and unpack"),
    ],
)
@pytest.mark.parametrize("source", [None, "download"])
def test_what_nobody_downloads(name, message, source):
    with pytest.raises(FileNotFoundError, match=f"{name} is not on this machine: {message}"):
        prepare(name, source)


def test_sizes_are_stores_of_their_own(tmp_path, root, any_count):
    folder = str(made_up.pets(tmp_path).folder)
    prepare("pets", folder, size=8)
    assert load("pets").image_size == 8
    prepare("pets", folder, size=16)
    prepare("pets", folder)
    with pytest.raises(ValueError, match="pets is prepared in the sizes 8, 16, 224: take "):
        load("pets")
    assert load("pets", size=16).image_size == 16
    assert load("pets", size=224).image_size == 224
    with pytest.raises(FileNotFoundError, match="run `dsf data prepare pets --size 9`"):
        load("pets", size=9)
    assert [name for name, _ in registry.stores()] == ["pets"] * 3
    with pytest.raises(ValueError, match=r"size must be in \[1, 4096\]; got 5000"):
        prepare("pets", folder, size=5000)


def test_a_damaged_or_unfinished_store_is_listed(tmp_path, root, any_count, capsys):
    store = prepare("pets", str(made_up.pets(tmp_path).folder), size=8)
    (store.path / "test-00000.npy").unlink()
    (root / "imagenet100-64.partial").mkdir()
    assert main(["data", "list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    states = {line[0]: line[1:3] for line in lines if len(line) > 2}
    assert states["pets"][0] == "damaged"
    assert states["imagenet100"] == ["not", "finished"]
    assert states["imagenet"] == ["224", "1,331,167"]


@pytest.mark.parametrize("data_set", SETS, ids=lambda data_set: data_set.name)
def test_entries(data_set):
    metric = "mean per class" if data_set.name in MEAN_PER_CLASS else "top-1"
    assert data_set.metric == metric
    assert data_set.resizable
    assert data_set.image_size == {"stl10": 96, "tiny-imagenet": 64}.get(data_set.name, 224)
    assert "test" in data_set.splits
    assert data_set.home.startswith("http")
    year = data_set.summary[-5:-1]
    assert year.isdecimal()
    assert year in data_set.citation
    assert registry.find(data_set.name, 32).metric == metric


def test_broken_images_are_an_error_of_python_too(tmp_path, any_count):
    expected = made_up.dtd(tmp_path)
    listed_files("dtd", expected)[0].write_bytes(b"")
    with pytest.raises(BrokenImagesError, match="images/banded/banded_train_0.jpg: is empty"):
        prepare("dtd", str(tmp_path), size=SIDE)
