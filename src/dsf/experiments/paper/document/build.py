"""The whole document, from result files to Markdown and SVG."""

import re
from collections.abc import Sequence
from pathlib import Path

from dsf.experiments.paper.document import (
    comparison,
    dynamics,
    provenance,
    sweeps,
    theory,
    transfer,
    verdicts,
)
from dsf.experiments.paper.document.book import Book
from dsf.experiments.paper.document.figures import Figures
from dsf.experiments.paper.document.markdown import join
from dsf.files import write_file

DOCUMENT = "results.md"
NOTES = "results-notes.md"

_MEASURES = """\
**Measures**, in per cent. *kNN*: weighted votes of 200 neighbours, by the projection, as the
authors report it, or by the backbone's features. *linear*: the paper's linear evaluation, at its
last epoch (the authors keep the epoch that is best on the test set); *linear, fast*: logistic
regression on features that are computed once. *kNN, left out*: of training images among the
others, which settings may be chosen by. *mCE*: the mean error of the paper's linear classifier
over 18 corruptions at severity 1, as the paper describes it, or, *mCE, all*, at severities 1 to 5;
lower is better. *GPU s* and *peak GiB* are of training alone; in tables of transfer, of
fine-tuning. The seconds by which a first epoch is longer than the others are left out: they go into
compiling, half a minute, or up to three for the first run of a kind. *GPU minutes* are all that
was spent on training; those of runs that shared a GPU, as most of the tuning did, add up to more
than passed. No epoch, setting or seed is chosen on test images."""

_SECTIONS = (
    comparison.table1,
    comparison.seeds,
    comparison.large,
    transfer.transfers,
    sweeps.ablation,
    sweeps.head,
    sweeps.temperature,
    sweeps.views,
    dynamics.convergence,
    dynamics.margin,
    dynamics.divergence_terms,
    provenance.tuning,
    provenance.sources,
)
_THEORY = (theory.kappa, theory.infonce, theory.theorem)


def render(books: Sequence[Book], folder: Path) -> Path:
    """Write the document and its figures; equal results give equal bytes.

    ``results-notes.md`` in the folder, written by hand, is taken in as it is. Figures of earlier
    renderings that are drawn no more are removed.

    Returns:
        The path of the document.
    """
    folder.mkdir(parents=True, exist_ok=True)
    notes = folder / NOTES
    drawn = Figures("theory")
    text = document(books, drawn, notes.read_text(encoding="utf-8") if notes.is_file() else "")
    for figures in (*(book.figures for book in books), drawn):
        figures.write(folder)
    write_file(folder / DOCUMENT, text.encode())
    return folder / DOCUMENT


def document(books: Sequence[Book], figures: Figures, notes: str) -> str:
    """The document; the figures of its chapters are in the books then.

    Args:
        books: a chapter each.
        figures: of the chapter that needs no results.
        notes: written by hand.
    """
    needs_none = join("# What needs no training", *(section(figures) for section in _THEORY))
    whole = join(
        "# Results",
        "Made by `make results` from the files in `results`; not to be edited. "
        "`dsf reproduce --list` shows the runs, `dsf reproduce RUN` does one.",
        _MEASURES.replace("\n", " "),
        provenance.overview(books),
        notes.strip(),
        *(_lowered(chapter(book)) for book in books),
        _lowered(needs_none),
    )
    return f"{whole}\n"


def chapter(book: Book) -> str:
    """All about a plan, as if it were a document of its own."""
    return join(
        f"# {book.plan.title}",
        provenance.standing(book),
        verdicts.verdicts(book),
        *(section(book) for section in _SECTIONS),
    )


def _lowered(text: str) -> str:
    """Headings a level lower."""
    return re.sub(r"(?m)^#", "##", text)
