"""``python -m dsf``: the command line, for torchrun."""

import sys

from dsf.cli import main

sys.exit(main())
