"""Files that several processes write."""

import errno
import os
import threading
import time

import pytest

from dsf.files import alone, locked, read_json, write_json


def add(path, names):
    for name in names:
        with locked(path.parent):
            found = read_json(path) if path.is_file() else {}
            time.sleep(0.001)
            write_json(path, found | {name: 1})


def test_who_holds_a_folder_is_alone(tmp_path):
    path = tmp_path / "results.json"
    names = [[f"{letter}{number}" for number in range(20)] for letter in "abcd"]
    threads = [threading.Thread(target=add, args=(path, some)) for some in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_json(path)) == {name for some in names for name in some}
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_an_error_lets_go(tmp_path):
    for _ in range(2):
        try:
            with locked(tmp_path):
                raise ValueError
        except ValueError:
            pass


def test_one_at_a_time(tmp_path):
    lock = tmp_path / ".lock"
    for _ in range(2):
        with alone(lock) as first, alone(lock) as second:
            assert (first, second) == (True, False)


@pytest.mark.parametrize("known", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_drive_that_knows_no_locks(tmp_path, monkeypatch, known):
    """ENOSYS is what Lustre says where it was mounted without them."""

    def flock(file, operation):
        raise OSError(known, os.strerror(known))

    monkeypatch.setattr("fcntl.flock", flock)
    with alone(tmp_path / ".lock") as mine:
        assert mine
    known = errno.EIO
    with pytest.raises(OSError, match="Input/output error"), alone(tmp_path / ".lock"):
        pass
