"""Small files in the formats that data sets come in, and folders compared byte for byte."""

import dataclasses
import gzip
import io
import json
import pickle
import struct
import tarfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from dsf.data import cifar

BATCH = 4
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]

# The two data sets without the checks that only the real files pass.
CIFAR10 = dataclasses.replace(cifar.CIFAR10, content={}, splits={})
CIFAR100 = dataclasses.replace(
    cifar.CIFAR100,
    open_source=partial(
        cifar.open_source, dataclasses.replace(cifar.CIFAR100_FILES, file_md5=None)
    ),
    splits={},
)


def cifar_arrays(classes=10):
    """Random images and labels: split -> (images, labels)."""
    generator = np.random.default_rng(0)
    return {
        split: (
            generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8),
            generator.integers(0, classes, count),
        )
        for split, count in (("train", 5 * BATCH), ("test", BATCH))
    }


def planes(images):
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


class Python2Pickle:
    """Writes what Python 2 wrote: byte strings as strings, arrays of NumPy 1."""

    def dump(self, value):
        return b"\x80\x02" + self.value(value) + b"."

    def value(self, value):
        if isinstance(value, str):
            data = value.encode("latin-1")
            return b"T" + struct.pack("<i", len(data)) + data
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(map(self.value, value)) + b"e"
        if isinstance(value, dict):
            pairs = (self.value(part) for pair in value.items() for part in pair)
            return b"}(" + b"".join(pairs) + b"u"
        return self.array(value)

    def array(self, array):
        count = b"(" + b"".join(map(self.value, array.shape)) + b"t"
        dtype = (
            b"cnumpy\ndtype\n(" + self.value(array.dtype.str[1:]) + b"K\x00K\x01tR"
            b"(K\x03" + self.value("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        )
        made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t"
        made += self.value("b") + b"tR"
        data = self.value(array.tobytes().decode("latin-1"))
        return made + b"(K\x01" + count + dtype + b"\x89" + data + b"tb"


def modern_pickle(value):
    return pickle.dumps(value, protocol=2)


def cifar10_pickles(arrays, dump=None):
    """File name -> content, as in cifar-10-batches-py."""
    dump = dump or Python2Pickle().dump
    images, labels = arrays["train"]
    parts = {
        name: (images[k * BATCH : (k + 1) * BATCH], labels[k * BATCH : (k + 1) * BATCH])
        for k, name in enumerate(TRAIN)
    }
    parts["test_batch"] = arrays["test"]
    return {
        name: dump({"batch_label": name, "labels": y.tolist(), "data": planes(x)})
        for name, (x, y) in parts.items()
    }


def cifar100_pickles(arrays, names, dump=None):
    dump = dump or Python2Pickle().dump
    files = {
        split: dump(
            {"fine_labels": y.tolist(), "coarse_labels": (y // 5).tolist(), "data": planes(x)}
        )
        for split, (x, y) in arrays.items()
    }
    return {**files, "meta": dump({"fine_label_names": names, "coarse_label_names": ["things"]})}


def npm_files(arrays):
    """File name -> content, as in the npm package."""
    images, labels = arrays["train"]
    files = {
        f"{name}.png": png(images[k * BATCH : (k + 1) * BATCH].reshape(BATCH, -1, 3))
        for k, name in enumerate(TRAIN)
    }
    files["test_batch.png"] = png(arrays["test"][0].reshape(BATCH, -1, 3))
    files["train_lables.json"] = json.dumps(labels.tolist()).encode()
    files["test_lables.json"] = json.dumps(arrays["test"][1].tolist()).encode()
    return files


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def encoded(kind):
    """A noisy picture as a file of a kind that Pillow writes."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def raw_png(width, height, depth, colour_type, rows):
    """A PNG made by hand: Pillow writes no 16-bit colours."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


def write_folder(folder: Path, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def write_archive(path: Path, inside: str, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{inside}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def idx(array, compressed):
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    data = header + array.astype(np.uint8).tobytes()
    return gzip.compress(data) if compressed else data


def picture_folder(folder: Path, counts):
    """Random PNGs: {"train/cat": 3} gives three of them in that folder."""
    generator = np.random.default_rng(1)
    for name, count in counts.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            height, width = generator.integers(5, 40, 2)
            pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
            (target / f"{number:04d}.png").write_bytes(png(pixels))
    return folder


def folders(root: Path):
    """The names of the folders in a root of stores."""
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def contents(folder: Path):
    """Every file below a folder with its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
