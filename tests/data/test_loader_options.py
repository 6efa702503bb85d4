import threading

import pytest
import torch
from loaders import RECIPE, images, make, same
from PIL import Image

import dsf.data
from dsf.data.augment import MultiCrop, TwoSides, Views


class TestForms:
    def test_lightly(self):
        data = images()
        plain = next(iter(make(data)))
        views, labels, indices = next(iter(make(data, form="lightly")))
        assert isinstance(views, list)
        assert torch.equal(torch.stack(views, 1), plain.views)
        assert all(view.is_contiguous() for view in views)
        assert torch.equal(labels, torch.full((4,), -1))
        assert torch.equal(indices, plain.samples)

    def test_solo_learn(self):
        plain = next(iter(make()))
        batch = next(iter(make(form="solo-learn")))
        assert isinstance(batch, list)
        indices, views, labels = batch
        assert len(views) == 2
        assert views[0].shape == (4, 3, 8, 8)
        assert torch.equal(indices, plain.samples)
        assert torch.equal(labels, plain.labels)

    def test_ones_own(self):
        batch = next(iter(make(form=lambda batch: {"pixels": batch.views})))
        assert batch["pixels"].shape == (4, 2, 3, 8, 8)

    def test_unknown(self):
        with pytest.raises(ValueError, match="form must be a function or one of plain, lightly"):
            make(form="tensorflow")


class TestRecipes:
    def test_a_pair(self):
        data = images()
        batch = next(iter(make(data, views=4, recipe=("mocov3-1", "mocov3-2"))))
        maker = TwoSides(Views("mocov3-1", 8), Views("mocov3-2", 8))
        order = batch.samples
        assert torch.equal(batch.views, maker(data[order], order, 0, torch.arange(4)))

    def test_local_views(self):
        maker = MultiCrop(Views(RECIPE, 8), Views(RECIPE, 4), 3)
        batch = next(iter(make(views=5, recipe=maker)))
        whole, local = batch.views
        assert whole.shape == (4, 2, 3, 8, 8)
        assert local.shape == (4, 3, 3, 4, 4)
        views, _, _ = next(iter(make(views=5, recipe=maker, form="lightly")))
        assert [view.shape[-1] for view in views] == [8, 8, 4, 4, 4]

    def test_wrong_ones(self):
        with pytest.raises(ValueError, match="views must be even with a recipe for each half"):
            make(views=3, recipe=("cifar", "cifar"))
        with pytest.raises(ValueError, match="recipe must be one or a pair; got 3"):
            make(recipe=("cifar", "cifar", "cifar"))
        with pytest.raises(ValueError, match=r"recipe must be a Recipe or .*; got \['cifar'"):
            make(recipe=["cifar", "cifar"])
        with pytest.raises(ValueError, match="views must be at least 1; got 0"):
            make(views=0)
        with pytest.raises(ValueError, match=r"size must be in \[4, 4096\]; got 0"):
            make(view_size=0)


class TestData:
    def test_by_name(self):
        loader = make("embedded", 500, split="test")
        assert len(loader) == 2
        assert loader.split.classes[0] == "airplane"

    @pytest.fixture
    def folder(self, root, tmp_path):
        folder = tmp_path / "pictures"
        for index in range(6):
            (folder / f"class{index % 2}").mkdir(parents=True, exist_ok=True)
            picture = Image.effect_noise((40, 20), 50).convert("RGB")
            picture.save(folder / f"class{index % 2}" / f"{index}.png")
        return folder

    def test_a_folder_is_prepared(self, folder):
        loader = make(folder, 2, stored_size=16)
        assert loader.split.sizes().tolist() == [[20, 40]] * 6
        batches = list(loader)
        assert batches[0].views.shape == (2, 2, 3, 16, 16)
        assert sorted(torch.cat([batch.labels for batch in batches]).tolist()) == [0] * 3 + [1] * 3
        named = make(f"folder:{folder}", 2, stored_size=16)
        assert same(batches, list(named))
        for same_store in (folder, f"folder:{folder}"):
            assert make(same_store, 2).split.image_size == 16
        make(folder, 2, stored_size=24)
        for either in (folder, f"folder:{folder}"):
            with pytest.raises(ValueError, match=r"in the sizes 16, 24: take stored_size=24, "):
                make(either, 2)
            with pytest.raises(ValueError, match=r"size must be in \[1, "):
                make(either, 2, stored_size=0)

    def test_a_folder_waits_for_whoever_prepares_it(self, folder, root):
        """As the processes of torchrun do, which all come at once."""
        fcntl = pytest.importorskip("fcntl")
        root.mkdir()
        with open(root / ".lock", "w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            released = threading.Event()

            def release():
                released.set()
                fcntl.flock(other, fcntl.LOCK_UN)

            threading.Timer(0.2, release).start()
            make(folder, 2, stored_size=16)
            assert released.is_set()

    def test_broken_images_are_left_out_by_what_the_message_says(self, folder):
        (folder / "class0" / "broken.png").write_bytes(b"no picture")
        with pytest.raises(ValueError, match="1 of 7 images cannot be read") as error:
            make(folder, 2, stored_size=16)
        advice = str(error.value).partition("leave them out with ")[2]
        assert advice == f"dsf.data.prepare('folder:{folder}', size=16, skip_broken=True)"
        eval(advice, {"dsf": dsf})
        assert len(make(folder, 2).split) == 6

    def test_memory_formats_make_no_difference(self):
        data = images()
        other = data.contiguous(memory_format=torch.channels_last)
        assert same(list(make(data)), list(make(other)))

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (torch.zeros(4, 3, 8, 8), "images must be uint8 of shape"),
            (images()[:, :1], r"got torch.uint8 of shape \(23, 1, 8, 8\)"),
            (images()[:, :, :4], "images must be square"),
            (images(0), "images must be square, and some"),
            ((images(), torch.zeros(22, dtype=torch.int64)), r"labels must be integers of shape"),
            ((images(), torch.zeros(23)), "got torch.float32"),
            ((images(), [0] * 23), "labels must be a tensor; got list, of which torch.tensor"),
            ((images().numpy(), torch.zeros(23)), "images must be a tensor; got ndarray"),
            ([1, 2], "data must be the name of a data set, .* got list"),
            ("nowhere", "data set must be one of"),
        ],
    )
    def test_that_cannot_be(self, data, message):
        with pytest.raises(ValueError, match=message):
            make(data)


@pytest.mark.parametrize("name", ["resident", "compile"])
def test_switches(name):
    with pytest.raises(ValueError, match=f"{name} must be True, False or 'auto'; got 'yes'"):
        make(**{name: "yes"})


def test_wrong_batch_size_is_told_at_once():
    with pytest.raises(ValueError, match=r"batch_size must be in \[1, 23\]"):
        make(batch_size=24)


def test_large_images_are_streamed(monkeypatch):
    monkeypatch.setattr("dsf.data.loader.room", lambda device: 23 * 8 * 8 * 3 - 1)
    loader = make()
    next(iter(loader))
    assert loader._batches.images == {}
    monkeypatch.setattr("dsf.data.loader.room", lambda device: 23 * 8 * 8 * 3)
    loader = make()
    next(iter(loader))
    assert "train" in loader._batches.images


@pytest.mark.usefixtures("compiler")
@pytest.mark.slow
def test_compiled_views_are_the_same():
    data = images()
    assert same(list(make(data)), list(make(data, compile=True)))
