"""The whole document, from result files to Markdown and SVG."""

from pathlib import Path

from dsf.data.files import write_file
from dsf.experiments.paper.document import (
    comparison,
    dynamics,
    provenance,
    sweeps,
    theory,
    verdicts,
)
from dsf.experiments.paper.document.book import FIGURES, Book
from dsf.experiments.paper.document.markdown import join
from dsf.experiments.paper.plan import Plan

DOCUMENT = "results.md"
NOTES = "results-notes.md"

_MEASURES = """\
**Measures**, in per cent. *kNN*: weighted votes of 200 neighbours, by the projection, as the
authors report it, or by the backbone's features. *linear*: the paper's linear evaluation, at its
last epoch (the authors keep the epoch that is best on the test set); *linear, fast*: logistic
regression on features that are computed once. *kNN, left out*: of training images among the
others, which settings may be chosen by. *mCE*: the mean error of the paper's linear classifier
over 18 corruptions at severity 1; lower is better. *GPU s* and *peak GiB* are of training alone.
No epoch, setting or seed is chosen on test images."""

_SECTIONS = (
    comparison.table1,
    comparison.seeds,
    sweeps.ablation,
    sweeps.head,
    sweeps.temperature,
    sweeps.views,
    dynamics.convergence,
    dynamics.margin,
    dynamics.divergence_terms,
    theory.kappa,
    theory.infonce,
    theory.theorem,
    provenance.tuning,
    provenance.sources,
)


def render(plan: Plan, results: Path, folder: Path) -> Path:
    """Write the document and its figures; equal results give equal bytes.

    ``results-notes.md`` in the folder, written by hand, is taken in as it is. Figures of earlier
    renderings that are drawn no more are removed.

    Returns:
        The path of the document.
    """
    book = Book.read(plan, results)
    notes = folder / NOTES
    text = document(book, notes.read_text(encoding="utf-8") if notes.is_file() else "")
    figures = folder / FIGURES / plan.name
    figures.mkdir(parents=True, exist_ok=True)
    for old in figures.glob("*.svg"):
        if old.name not in book.figures:
            old.unlink()
    for name, content in book.figures.items():
        write_file(figures / name, content.encode())
    write_file(folder / DOCUMENT, text.encode())
    return folder / DOCUMENT


def document(book: Book, notes: str) -> str:
    """The document; its figures are in the book then."""
    sections = [section(book) for section in _SECTIONS]
    whole = join(
        f"# Results: {book.plan.title}",
        "Made by `make results` from the files in "
        f"`results/{book.plan.name}`; not to be edited. "
        "`dsf reproduce --list` shows the runs, `dsf reproduce RUN` does one.",
        _MEASURES.replace("\n", " "),
        provenance.standing(book),
        verdicts.verdicts(book),
        notes.strip(),
        *sections,
    )
    return f"{whole}\n"
