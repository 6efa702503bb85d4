"""Prepare a small data set and be killed at every step; run by test_resume.

Usage: killed.py SOURCE FOLDER [BEFORE]. FOLDER/whole is prepared undisturbed. FOLDER/NUMBER is
prepared by a process that dies by SIGKILL just before step NUMBER, then by one that may finish; a
step forces a file or folder to the disk, makes, renames or removes one. FOLDER/often is prepared
by one process after the other, each killed at its 20th step, until one finishes. All roots start as
copies of BEFORE, if given.
"""

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import miniature

from dsf.data import prepare, writer

OFTEN = 20
steps = 0


def die_before(name, owner, last):
    original = getattr(owner, name)

    def step(*arguments, **options):
        global steps
        steps += 1
        if steps == last:
            if name == "fsync":
                cut(arguments[0])
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "fsync":
            return None  # it takes long, and matters only where power fails
        return original(*arguments, **options)

    setattr(owner, name, step)


def cut(descriptor):
    """What has not been forced to the disk may be there in part only."""
    with suppress(OSError):  # a folder
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)


def attempt(source, root, last):
    """Prepare in a child that is killed before step ``last``; returns (signal, steps it took)."""
    reader, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        with open(reader) as answer:
            taken = answer.read()
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"step {last} of {root}"
        return (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0), int(taken or 0)
    try:
        os.environ["DSF_DATA"] = str(root)
        for name, owner in (
            ("fsync", os),
            ("replace", os),
            ("unlink", Path),
            ("mkdir", Path),
            ("rmtree", shutil),
        ):
            die_before(name, owner, last)
        if source.startswith("folder:"):
            prepare(source, size=8, skip_broken=True)
        else:
            prepare(miniature.CIFAR10, source)
        os.write(writing, str(steps).encode())
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def main():
    source, folder, *before = sys.argv[1:]
    images, side = (3, 8) if source.startswith("folder:") else (8, 32)
    writer.SHARD_BYTES = images * side * side * 3

    def start(name):
        root = Path(folder) / name
        if before:
            shutil.copytree(before[0], root)
        return root

    Path(folder).mkdir()
    _, total = attempt(source, start("whole"), 0)
    for number in range(1, total + 1):
        root = start(str(number))
        assert attempt(source, root, number)[0] == signal.SIGKILL
        assert attempt(source, root, 0)[0] == 0
    root, runs = start("often"), 1
    while attempt(source, root, OFTEN)[0] == signal.SIGKILL:
        runs += 1
        assert runs < total
    print(total, runs)


if __name__ == "__main__":
    main()
