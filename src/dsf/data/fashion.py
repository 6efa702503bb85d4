"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017), from IDX files, compressed or not."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from dsf.data.layout import search_folders
from dsf.data.source import ArraySource, Bytes, Content, DataSet, Request, Source

_SIZE = 28
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
# Debian's package dataset-fashion-mnist has the first below /usr/share/datasets; torchvision the
# second below its root.
_FOLDERS = ("fashion-mnist", "FashionMNIST/raw")

CLASSES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


def open_source(request: Request) -> Source:
    """Open the folder that ``--source`` names, or else the one that is found."""
    if request.source is None:
        paths = [folder / name for folder in search_folders() for name in _FOLDERS]
        found = [path for path in paths if _holds(path)]
        if not found:
            raise FileNotFoundError(
                "fashion-mnist is not on this machine: install Debian's package "
                "dataset-fashion-mnist, or give --source PATH, the folder of its IDX files"
            )
        path = found[0]
    else:
        path = Path(request.source).expanduser()
        if not path.is_dir():
            raise FileNotFoundError(f"source {path} is not a folder")
        path = next((path / name for name in _FOLDERS if _holds(path / name)), path)
    arrays = {}
    for split, (images, labels) in _FILES.items():
        gray = read_idx(path, images)
        if gray.ndim != 3:
            raise ValueError(f"{path / images} must hold (N, H, W); got {gray.shape}")
        colour = np.repeat(gray[..., None], 3, axis=-1)
        arrays[split] = (colour, read_idx(path, labels).astype(np.int64))
    return ArraySource(str(path.absolute()), CLASSES, arrays)


def _holds(folder: Path) -> bool:
    name = _FILES["train"][0]
    return (folder / name).is_file() or (folder / f"{name}.gz").is_file()


def read_idx(folder: Path, name: str) -> Bytes:
    """An array of bytes in the format of MNIST, in a file called ``name`` or ``name``.gz."""
    path = folder / name
    if not path.is_file():
        path = folder / f"{name}.gz"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has neither {name} nor {path.name}")
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    # two zeros, the type (8: bytes), the number of dimensions, each of them as a big-endian word
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is not an IDX file of bytes: it starts with {data[:4]!r}")
    start = 4 + 4 * data[3]
    shape = tuple(int(side) for side in np.frombuffer(data[4:start], ">u4"))
    if len(data) - start != math.prod(shape):
        raise ValueError(
            f"{path}: shape {shape} needs {math.prod(shape)} bytes; got {len(data) - start}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


FASHION_MNIST = DataSet(
    "fashion-mnist",
    "70,000 pictures of clothes in 10 classes (Xiao et al., 2017)",
    open_source,
    _SIZE,
    splits={"train": 60000, "test": 10000},
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST, a novel image dataset for benchmarking "
    "machine learning algorithms, 2017",
    home="https://github.com/zalandoresearch/fashion-mnist",
    content={
        "train": Content(
            "f8d08d742c618acbda0443f170345a007ed2ddf142964f9730df8a98c3911b3b",
            "e3245b63f7c40d1c8b652835f19744d970c1613b40ddac6bcfc87b9c46e16a0b",
        ),
        "test": Content(
            "b543ae908b39ed328f4823e3f2ac3f0c826558dc6d559fc81a1f0230db24fe69",
            "d51d859896c55775b9e9e219b77ff03bcec1b6ac322f313544dc3f9e7bc94fae",
        ),
    },
)
