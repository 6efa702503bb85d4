"""What parts of dsf cost on this machine, beside rivals in the same run: ``dsf bench``."""
