import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook, new_output
from run_notebook import LARGEST, check, run

TOUR = Path(__file__).parents[2] / "examples" / "tour.ipynb"


@pytest.fixture
def tour():
    return nbformat.read(TOUR, as_version=4)


def shown(text="5", **options):
    output = new_output("stream", text=text)
    return new_notebook(cells=[new_code_cell("5", execution_count=1, outputs=[output], **options)])


def kinds(notebook):
    """What each cell shows, whatever the numbers."""
    return [
        [sorted(output.get("data", {"text": 0})) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_what_is_stored_was_run_and_is_fit_to_be_shown(tour):
    nbformat.validate(tour)
    check(tour)
    pictures = [output for cell in kinds(tour) for output in cell if "image/png" in output]
    assert len(pictures) >= 3


def test_it_has_learned_something(tour):
    text = "".join(
        output.get("text", "") for cell in tour.cells for output in cell.get("outputs", [])
    )
    before, after = re.search(r"kNN (\S+)% before, (\S+)% after", text).groups()
    assert 10 < float(before) < float(after)


@pytest.mark.slow
def test_it_runs(tour, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    shutil.copy(TOUR, tmp_path)
    fresh = nbformat.read(tmp_path / TOUR.name, as_version=4)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with pytest.raises(ValueError, match="cells must have been run once"):
        check(fresh)
    run(fresh, tmp_path)
    check(fresh)
    assert kinds(fresh) == kinds(tour)


@pytest.mark.slow
def test_an_error_stops_it(tmp_path):
    notebook = new_notebook(cells=[new_code_cell("1 / 0")])
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run(notebook, tmp_path)


class TestWhatMayNotBeStored:
    def test_a_notebook_that_shows_something_may(self):
        check(shown())

    def test_no_outputs(self):
        with pytest.raises(ValueError, match="shows nothing"):
            check(new_notebook(cells=[new_code_cell("5", execution_count=1)]))

    def test_another_order(self):
        notebook = shown()
        notebook.cells[0].execution_count = 2
        with pytest.raises(ValueError, match="from top to bottom"):
            check(notebook)

    def test_an_error(self):
        notebook = shown()
        notebook.cells[0].outputs.append(new_output("error", ename="KeyError", evalue="x"))
        with pytest.raises(ValueError, match="a cell failed: KeyError: x"):
            check(notebook)

    @pytest.mark.parametrize("place", ["/home/me/x.py", "/tmp/a", "see /usr/lib/python3"])
    def test_places(self, place):
        with pytest.raises(ValueError, match="names a place on some machine"):
            check(shown(place))

    def test_addresses_are_no_places(self):
        check(shown("https://example.org/home/page and a/tmp/b"))

    def test_too_much(self):
        with pytest.raises(ValueError, match="must take at most 1,000,000 bytes"):
            check(shown("x" * LARGEST))
