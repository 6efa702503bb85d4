"""``python -m dsf``: the command line, for torchrun."""

import os
import sys

from dsf.cli import main


def _exit(code: int) -> None:
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        # Gloo's threads outlive the process group where DistributedDataParallel has held it. One
        # that wants the interpreter while it is being taken down aborts the whole process, and
        # with it a job whose work is done.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _exit(main())
