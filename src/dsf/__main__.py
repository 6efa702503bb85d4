"""``python -m dsf``: the command line, for torchrun."""

import sys

from dsf.cli import main

if __name__ == "__main__":
    sys.exit(main())
