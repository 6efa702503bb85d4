"""Reports: runs on one page, and their figures as files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dsf.experiments import build
from dsf.experiments.looks import left_out, look_at_runs
from dsf.experiments.page import Lack, make_page, read_runs
from dsf.experiments.run import labelled
from dsf.experiments.subjects import choose_device, how_to_split, run_settings
from dsf.experiments.unfinished import unfinished_note
from dsf.files import write_file

PAGE = "report.html"


class Report(NamedTuple):
    """What a report leaves behind: its page, and the files of its figures."""

    page: Path
    figures: list[Path]


def write_report(
    folders: Sequence[Path | str],
    page: Path | str | None = None,
    figures: Path | str | None = None,
    title: str | None = None,
    pictures: bool = True,
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
    begin: Callable[[], None] = lambda: None,
) -> Report:
    """Write a page about one run, or about several side by side.

    Args:
        folders: of runs, finished or not, as complete as they happen to be.
        page: the HTML file, written anew if it is there; by default ``report.html``, of one run
            in its folder and of several in the current one.
        figures: a folder for the figures as SVG and PNG, besides.
        title: of the page; by default the names of the runs.
        pictures: show views and features too, for which images and weights must be there.
        device: where features are computed: cpu, cuda or auto.
        say: told what happens next.
        begin: called once all that was asked for is found to be right, before the work.
    """
    if pictures:
        device = choose_device(device)
    if page is None:
        page = Path(folders[0]) / PAGE if len(folders) == 1 else PAGE
    page = Path(page)
    if page.is_dir():
        raise ValueError(f"page must be a file such as {page / PAGE}; got the folder {page}")
    runs = read_runs(folders)
    if not page.parent.is_dir():
        raise FileNotFoundError(f"cannot write {page}: there is no folder {page.parent}")
    for run in runs.values():
        if note := unfinished_note(run):
            say(note)
    begin()
    places = {label: run.folder for label, run in runs.items()}
    shown = look_at_runs(places, device, say) if pictures else left_out(list(runs))
    found = {label: _lack(place) for label, place in places.items()}
    lacks = {label: lack for label, lack in found.items() if lack is not None}
    made = make_page(title or _title(list(runs)), _lead(len(runs)), runs, shown, lacks)
    write_file(page, made.html.encode())
    written = [] if figures is None else made.figures.write(Path(figures))
    return Report(page, written)


def _lack(folder: Path | str) -> Lack | None:
    """What a run's data set lacks for evaluations; None also where it cannot be found."""
    try:
        settings = run_settings(folder, "cpu")
        train = build.load_split(settings, "train")
    except (OSError, ValueError):
        return None
    labels = not train.labelled or len(train.classes) < 2
    if not labels and labelled(settings, ["test"]):
        return None
    return Lack(settings.data.name, labels, how_to_split(settings.data.name))


def _title(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{len(labels)} runs side by side"


def _lead(count: int) -> str:
    if count == 1:
        return (
            "A training run of dsf: what it was told, what it reached, and what it learned to see."
        )
    return (
        "Training runs of dsf: by what they differ, what each reached, and what it learned to see."
    )
