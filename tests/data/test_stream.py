import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from dsf.data import Split
from dsf.data.rows import ShardFile

SIZE = 6


def threads():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("dsf-gather")}


def make(folder, count=23, size=SIZE, shard=7):
    """A split of files."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    shards = []
    for number, start in enumerate(range(0, count, shard)):
        path = folder / f"{number}.npy"
        np.save(path, pixels[start : start + shard])
        header = np.load(path, mmap_mode="r")
        shards.append(ShardFile(path, header.offset, header.shape))
    return Split("train", shards), torch.from_numpy(pixels).permute(0, 3, 1, 2)


@pytest.fixture
def split(tmp_path):
    return make(tmp_path)


@pytest.mark.parametrize("ahead", [1, 3, 20])
def test_the_order_of_its_batches(split, ahead):
    split, whole = split
    batches = torch.randperm(23)[:22].split(4)  # the last is smaller
    streamed = list(split.stream(iter(batches), ahead=ahead))
    assert len(streamed) == len(batches)
    for indices, (samples, images) in zip(batches, streamed, strict=True):
        assert torch.equal(samples, indices)
        assert torch.equal(images, whole[indices])
        assert images.is_contiguous(memory_format=torch.channels_last)


def test_arrays_maps_and_slices_are_read_too(split, tmp_path):
    split, whole = split
    first, *others = (np.load(tmp_path / f"{number}.npy", mmap_mode="r") for number in range(3))
    mixed = Split("train", [first[2:], np.array(others[0]), others[1][::-1], split._shards[3]])
    expected = torch.cat([whole[2:7], whole[7:14], whole[14:21].flip(0), whole[21:]])
    indices = torch.randperm(len(mixed))
    assert torch.equal(mixed.gather(indices), expected[indices])


def test_an_error_of_a_reader_is_raised_and_ends_the_others(split):
    batches = [torch.tensor([0]), torch.tensor([99]), *torch.arange(20).split(1)]
    with pytest.raises(ValueError, match=r"indices must be in \[0, 23\); got 99 to 99"):
        list(split[0].stream(batches))
    assert threads() == set()


def test_an_error_of_the_order_is_raised_and_ends_the_readers(split):
    def batches():
        yield torch.tensor([0])
        yield torch.tensor([1])
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(split[0].stream(batches(), ahead=4))
    assert threads() == set()


def test_it_may_be_left_early_and_reads_no_further_than_asked(split):
    drawn = []

    def batches():
        for number in range(23):
            drawn.append(number)
            yield torch.tensor([number])

    stream = split[0].stream(batches(), ahead=2)
    assert next(stream).samples.tolist() == [0]
    assert threads()
    stream.close()
    assert drawn == [0, 1, 2]
    assert threads() == set()


def test_a_receiver_may_keep_its_batches(split):
    split, whole = split
    kept = list(split.stream(torch.arange(23).split(1), ahead=1))
    assert torch.equal(torch.cat([batch.images for batch in kept]), whole)


def test_ahead(split):
    with pytest.raises(ValueError, match="ahead must be >= 1; got 0"):
        next(split[0].stream([torch.tensor([0])], ahead=0))


def test_a_file_that_was_cut_short(split, tmp_path):
    path = tmp_path / "1.npy"
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(OSError, match="1.npy has changed since it was opened"):
        split[0].gather(torch.tensor([0, 13]))
    assert torch.equal(split[0].gather(torch.tensor([12])), split[1][12:13])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_what_was_streamed_does_not_stay_in_memory(tmp_path):
    def mapped():
        """KiB of this process that lie in files."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))

    split, _ = make(tmp_path, count=512, size=128, shard=64)  # 24 MiB
    list(split.stream(torch.arange(32).split(8)))
    before = mapped()
    for batch in split.stream(torch.arange(512).split(8)):
        assert len(batch.images) == 8
    assert mapped() - before < 2048


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@gpu
@pytest.mark.gpu
class TestOnTheGPU:
    @pytest.mark.parametrize("ahead", [1, 2, 5])
    @pytest.mark.parametrize("busy", [False, True])
    def test_batches_are_right_however_far_behind_the_device_is(self, tmp_path, ahead, busy):
        """Slow kernels between batches: nothing may be overwritten before it was taken."""
        split, whole = make(tmp_path, count=240, size=32, shard=50)
        batches = [torch.randperm(240)[:size] for size in (16, 16, 7, 30, 16) * 6]
        kept = []
        for batch in split.stream(batches, "cuda", ahead=ahead):
            if busy:
                torch.cuda._sleep(20_000_000)
            kept.append(batch)
        for indices, batch in zip(batches, kept, strict=True):
            assert batch.images.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(batch.samples.cpu(), indices)
            assert torch.equal(batch.images.cpu(), whole[indices])

    def test_one_stream_after_the_other(self, tmp_path):
        """The next takes the memory of the one before, whose last batches may not be taken yet."""
        split, whole = make(tmp_path, count=64, size=32, shard=50)
        kept = []
        for seed in range(6):
            torch.cuda._sleep(50_000_000)
            order = torch.randperm(64, generator=torch.Generator().manual_seed(seed))
            kept += [(order, batch) for batch in split.stream([order], "cuda")]
        for order, batch in kept:
            assert torch.equal(batch.images.cpu(), whole[order])

    def test_another_current_stream(self, tmp_path):
        split, whole = make(tmp_path, count=64, size=32)
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):
            batches = list(split.stream(torch.arange(64).split(8), "cuda"))
            found = torch.cat([batch.images for batch in batches])
        other.synchronize()
        assert torch.equal(found.cpu(), whole)

    def test_memory_is_bounded(self, tmp_path):
        """A program far ahead of the device must not fill either memory with batches."""
        split, _ = make(tmp_path, count=64, size=128, shard=50)
        size = 64 * 128 * 128 * 3
        order = torch.arange(64)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        for batch in split.stream([order] * 100, "cuda", ahead=2):
            torch.cuda._sleep(2_000_000)
            del batch
        torch.cuda.synchronize()
        assert torch.cuda.max_memory_allocated() - before < 5 * size

    def test_an_error_of_a_reader(self, tmp_path):
        split, _ = make(tmp_path)
        with pytest.raises(ValueError, match="indices must be in"):
            list(split.stream([torch.tensor([0]), torch.tensor([99])] * 4, "cuda"))
        assert threads() == set()

    def test_a_graph_may_be_recorded_meanwhile(self, tmp_path):
        split, whole = make(tmp_path, count=240, size=32, shard=50)
        batches = torch.arange(240).split(16)
        static = torch.zeros((16, 3, 32, 32), dtype=torch.uint8, device="cuda")
        total, graph = static.sum(), None
        for number, batch in enumerate(split.stream(batches, "cuda", ahead=4)):
            static.copy_(batch.images)
            if number == 2:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    total += static.sum()
            if graph is not None:
                graph.replay()
        assert total.item() == whole[32:].sum().item()
