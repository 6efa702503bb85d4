import datetime
import time

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dsf import distributed


def late(rank, folder):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=1),
    )
    distributed.wait()
    if rank == 1:
        time.sleep(3)
        return
    with pytest.raises(RuntimeError) as caught:
        distributed.wait()
    assert distributed.lost_another(caught.value), caught.value
    assert not distributed.lost_another(RuntimeError("shapes differ"))


def test_one_that_does_not_come_is_lost(tmp_path):
    mp.spawn(late, args=(tmp_path,), nprocs=2)


def differentiate_twice(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    own = torch.ones(1, 2, requires_grad=True)
    cubes = distributed.gather(own).pow(3).sum()
    (first,) = torch.autograd.grad(cubes, own, create_graph=True)
    assert first.tolist() == [[6.0, 6.0]]
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()
    dist.destroy_process_group()  # its threads would end the process by SIGABRT now and then


def test_gathering_has_no_second_derivative(tmp_path):
    # It would lack what the other processes' losses owe to it.
    mp.spawn(differentiate_twice, args=(tmp_path,), nprocs=2)


def test_the_first_may_evaluate_for_long(monkeypatch):
    given = {}
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **options: given.update(options))
    monkeypatch.setenv("WORLD_SIZE", "2")
    distributed.start("cpu")
    assert given["timeout"] >= datetime.timedelta(hours=2)
