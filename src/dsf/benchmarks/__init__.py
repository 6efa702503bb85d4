"""What parts of dsf cost on this machine, beside rivals in the same run: ``dsf bench``.

Each module but ``report`` has ``run(command, repeats, path)``: measure, print tables, and write
them to a JSON file, if a path is given. ``command`` is what it was called by; ``repeats`` is how
often calls are repeated, ten times as often on a GPU.
"""
