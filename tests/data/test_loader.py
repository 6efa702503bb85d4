import threading

import numpy as np
import pytest
import torch
from loaders import RECIPE, images, make, same, samples

from dsf import distributed
from dsf.data import Split, ViewBatch, ViewLoader, load
from dsf.data.sampler import EpochSampler


class TestBatches:
    def test_are_those_of_training(self):
        from dsf.experiments import build, load_recipe

        settings = build.resolve(
            load_recipe(
                "demo",
                ["device=cpu", "batch_size=16", "seed=3", "views.count=4", "data.resident=true"],
            )
        )
        cpu = torch.device("cpu")
        split = load("embedded")
        batches = build.build_batches(settings, split, cpu)
        maker = build.build_views(settings, cpu)
        (recipe,) = settings.views.recipes()
        loader = ViewLoader(
            split, 16, 4, recipe, view_size=settings.views.size, seed=3, device="cpu"
        )
        loader.set_epoch(5)
        for trained, batch, _ in zip(batches.epoch(5), loader, range(2), strict=False):
            views = maker(trained.images, trained.samples, 5, torch.arange(4), None)
            assert torch.equal(batch.views, views)
            assert torch.equal(batch.samples, trained.samples)
            assert torch.equal(batch.labels, split.labels()[trained.samples])

    def test_have_the_shapes_told(self):
        loader = make(views=3, view_size=12)
        batches = list(loader)
        assert len(batches) == len(loader) == 5
        for batch in batches:
            assert isinstance(batch, ViewBatch)
            assert batch.views.shape == (4, 3, 3, 12, 12)
            assert batch.views.dtype == torch.float32
            assert not batch.views.requires_grad
            assert batch.labels.tolist() == [sample % 5 for sample in batch.samples.tolist()]

    def test_do_not_depend_on_where_the_images_lie(self):
        data = images()
        kept, streamed = (list(make(data, resident=resident)) for resident in (True, False))
        assert same(kept, streamed)

    def test_streaming_ends_its_threads_when_left(self):
        iterator = iter(make(resident=False))
        next(iterator)
        assert any(thread.name.startswith("dsf-gather") for thread in threading.enumerate())
        iterator.close()
        assert not any(thread.name.startswith("dsf-gather") for thread in threading.enumerate())

    def test_gradients_stay_on_outside(self):
        for _ in make():
            assert torch.is_grad_enabled()

    def test_dtype(self):
        assert next(iter(make(dtype=torch.bfloat16))).views.dtype == torch.bfloat16

    def test_original_sizes_matter(self):
        data = images()
        pixels = data.permute(0, 2, 3, 1).contiguous().numpy()
        wide = Split("train", [pixels], sizes=np.full((23, 2), (8, 80)))
        assert not same(list(make(data)), list(make(wide)))


class TestEpochs:
    def test_follow_each_other(self):
        loader = make()
        first, second = list(loader), list(loader)
        assert not same(first, second)
        expected = EpochSampler(23, 4, seed=0, rank=0, world_size=1)
        for epoch, batches in enumerate((first, second)):
            order = list(expected.batches(epoch))
            assert all(map(torch.equal, (batch.samples for batch in batches), order))

    def test_can_be_set(self):
        data = images()
        loader, other = make(data), make(data)
        third = [list(loader) for _ in range(3)][2]
        other.sampler.set_epoch(2)
        assert other.epoch == 2
        assert same(third, list(other))
        other.set_epoch(2)
        assert same(third, list(other))

    def test_one_left_early_is_not_repeated(self):
        loader = make()
        whole = [samples(loader) for _ in range(2)]
        loader.set_epoch(0)
        assert next(iter(loader)).samples.tolist() == whole[0][0]
        assert samples(loader) == whole[1]

    def test_opened_twice_but_read_once_counts_once(self):
        loader = make()
        iter(loader)
        samples(loader)
        assert loader.epoch == 1

    def test_seeds_differ(self):
        data = images()
        assert not same(list(make(data)), list(make(data, seed=1)))

    def test_wrong_ones(self):
        with pytest.raises(ValueError, match=r"epoch must be in \[0, 2\^32\); got -1"):
            make().set_epoch(-1)


class TestResume:
    @pytest.mark.parametrize("done", [0, 1, 4, 5, 7])
    def test_goes_on_with_the_next_batch(self, done):
        data = images()

        def endless(loader):
            while True:
                yield from loader

        whole = [batch for _, batch in zip(range(15), endless(make(data)))]
        loader = make(data)
        for _ in zip(range(done), endless(loader)):
            pass
        state = loader.state_dict()
        assert (state["epoch"], state["batch"]) == divmod(done, 5)
        again = make(data)
        again.load_state_dict(state)
        assert same([batch for _, batch in zip(range(15 - done), endless(again))], whole[done:])

    def test_in_a_loop_that_tells_the_epoch(self):
        loader = make()
        loader.set_epoch(3)
        whole = samples(loader)
        loader.set_epoch(3)
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = loader.state_dict()
        again = make()
        again.load_state_dict(state)
        again.set_epoch(3)
        assert samples(again) == whole[2:]
        again.load_state_dict(state)
        again.set_epoch(4)
        assert len(samples(again)) == 5

    def test_another_number_of_processes_shares_the_same_steps(self):
        alone = make(batch_size=4)
        next(iter(alone))
        half = make(batch_size=2, rank=1, world_size=2)
        half.load_state_dict(alone.state_dict())
        assert half.state_dict()["batch"] == 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"seed": 1}, "seed is 0 there, 1 here"),
            ({"batch_size": 5}, "images_a_step is 4 there, 5 here"),
            ({"data": images(24)}, "images is 23 there, 24 here"),
        ],
    )
    def test_of_another_order_is_refused(self, change, message):
        with pytest.raises(ValueError, match=message):
            make(**change).load_state_dict(make().state_dict())

    def test_the_state_of_something_else(self):
        message = r"state is of no ViewLoader: it has \['epoch', 'step'\], but no 'batch'"
        with pytest.raises(ValueError, match=message):
            make().load_state_dict({"epoch": 1, "step": 2})


class TestProcesses:
    def test_share_the_images(self):
        data = images()
        whole = list(make(data))
        halves = [list(make(data, batch_size=2, rank=rank, world_size=2)) for rank in (0, 1)]
        for batch, first, second in zip(whole, *halves, strict=True):
            assert torch.equal(batch.samples[0::2], first.samples)
            assert torch.equal(batch.samples[1::2], second.samples)
            assert torch.equal(batch.views[1::2], second.views)

    def test_that_start_after_the_loader_count_too(self, monkeypatch):
        loader = make()
        whole = samples(loader)
        monkeypatch.setattr(distributed, "rank", lambda: 1)
        monkeypatch.setattr(distributed, "world_size", lambda: 2)
        assert len(loader) == 2
        loader.set_epoch(0)
        own = [sample for batch in samples(loader) for sample in batch]
        assert own == [sample for batch in whole for sample in batch][1:16:2]

    @pytest.mark.parametrize("size", [20, 21, 22, 23])
    def test_all_have_equally_many_even_with_the_last(self, size):
        ranks = [
            samples(make(images(size), 4, rank=rank, world_size=3, drop_last=False))
            for rank in range(3)
        ]
        assert len({tuple(map(len, batches)) for batches in ranks}) == 1
        seen = [sample for batches in ranks for batch in batches for sample in batch]
        assert set(seen) == set(range(size))
        assert len(seen) == -(-size // 3) * 3

    def test_more_than_there_are_images(self):
        ranks = [
            samples(make(images(2), 4, rank=rank, world_size=5, drop_last=False))
            for rank in range(5)
        ]
        assert [len(batch) for (batch,) in ranks] == [1] * 5
        assert {sample for (batch,) in ranks for sample in batch} == {0, 1}


def test_drop_last():
    loader = make(drop_last=False)
    assert len(loader) == 6
    batches = samples(loader)
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4, 3]
    assert sorted(sample for batch in batches for sample in batch) == list(range(23))
    assert len(make(batch_size=100, drop_last=False)) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnTheGPU:
    @pytest.mark.parametrize("resident", [True, False])
    @pytest.mark.parametrize("compile", [True, False])
    def test_the_same_views(self, resident, compile):
        data = images(), torch.arange(23)
        options = {"recipe": "cifar", "views": 4, "drop_last": False}
        here = list(make(data, **options))
        loader = ViewLoader(data, 4, resident=resident, compile=compile, **options)
        for batch, expected in zip(loader, here, strict=True):
            assert batch.views.is_cuda
            assert torch.equal(batch.labels.cpu(), expected.labels)
            assert torch.equal(batch.samples.cpu(), expected.samples)
            assert torch.equal(batch.views.cpu(), expected.views)

    def test_views_in_lists_are_channels_last(self):
        loader = ViewLoader(images(), 4, 2, RECIPE, form="lightly", compile=False)
        views, _, _ = next(iter(loader))
        assert all(view.is_contiguous(memory_format=torch.channels_last) for view in views)

    def test_nothing_waits_for_the_device(self):
        loader = ViewLoader(images(), 4, 2, RECIPE, form="lightly", compile=False)
        iterator = iter(loader)
        next(iterator)  # an epoch may wait where it begins
        torch.cuda.set_sync_debug_mode("error")
        try:
            assert len(list(iterator)) == 4
        finally:
            torch.cuda.set_sync_debug_mode("default")
