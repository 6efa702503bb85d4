"""Run a notebook from top to bottom and keep what it shows.

    python tools/run_notebook.py examples/tour.ipynb     # or `make notebook`

What tells of the machine it ran on is left out, so that two runs differ in their results alone.
"""

import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

LARGEST = 1_000_000  # bytes
SECONDS = 900  # for a cell

# tqdm, which others import, misses a progress bar that nothing here would draw.
_QUIET = {"PYTHONWARNINGS": "ignore:IProgress not found"}
_PLACES = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|usr|var|work|opt|mnt|Users|private)/")


def run(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in a folder; raises ``CellExecutionError`` where one fails."""
    NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    ).execute(env=os.environ | _QUIET)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data.pop("image/jpeg", None)  # Pillow shows every picture in both formats
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def check(notebook: NotebookNode) -> None:
    """Raise ``ValueError`` unless it was run from top to bottom, and is fit to be shown."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        raise ValueError("cells must have been run once, from top to bottom: `make notebook`")
    outputs = [output for cell in code for output in cell.outputs]
    if not outputs:
        raise ValueError("the notebook shows nothing: `make notebook`")
    if failed := [output for output in outputs if output.output_type == "error"]:
        raise ValueError(f"a cell failed: {failed[0].ename}: {failed[0].evalue}")
    text = nbformat.writes(notebook)
    if len(text.encode()) > LARGEST:
        raise ValueError(f"the notebook must take at most {LARGEST:,} bytes; got {len(text):,}")
    if place := _PLACES.search(text):
        around = text[max(0, place.start() - 20) : place.end() + 40]
        raise ValueError(f"the notebook names a place on some machine: {around!r}")


def main() -> None:
    """Run the notebook that was named, and write it back."""
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/run_notebook.py NOTEBOOK")
    path = Path(sys.argv[1])
    notebook = nbformat.read(path, as_version=4)
    run(notebook, path.parent)
    check(notebook)
    nbformat.write(notebook, path)
    print(path)


if __name__ == "__main__":
    main()
