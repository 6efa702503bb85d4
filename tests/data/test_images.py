"""Every kind of image file: its pixels, or the message it gives."""

import hashlib
import os
import struct

import numpy as np
import pytest
from miniature import encoded, raw_png
from PIL import Image, ImageOps

from dsf.data.images import UnreadableImageError, read_square

SIDE = 8


def save(path, image, **options):
    image.save(path, **options)
    return path


def constant(mode, colour):
    return Image.new(mode, (SIDE, SIDE), colour)


def pixel(path):
    """The colour of an image that has only one."""
    square, size = read_square(path, SIDE)
    assert square.shape == (SIDE, SIDE, 3)
    assert square.dtype == np.uint8
    assert size == (SIDE, SIDE)
    assert (square == square[0, 0]).all()
    return tuple(square[0, 0].tolist())


@pytest.mark.parametrize(
    ("mode", "colour", "name", "expected"),
    [
        ("RGB", (10, 20, 30), "a.png", (10, 20, 30)),
        ("RGB", (10, 20, 30), "a.bmp", (10, 20, 30)),
        ("RGB", (10, 20, 30), "a.ppm", (10, 20, 30)),
        ("L", 77, "gray.png", (77, 77, 77)),
        ("1", 1, "bits.png", (255, 255, 255)),
        ("CMYK", (255, 0, 0, 0), "cmyk.tif", (0, 255, 255)),
        ("CMYK", (0, 0, 0, 255), "cmyk.tif", (0, 0, 0)),
        ("CMYK", (0, 51, 102, 51), "cmyk.tif", (204, 163, 122)),
        ("LA", (100, 255), "opaque.png", (100, 100, 100)),
        ("LA", (0, 51), "veil.png", (204, 204, 204)),
        ("RGBA", (255, 0, 0, 255), "opaque.png", (255, 0, 0)),
        ("RGBA", (255, 0, 0, 51), "veil.png", (255, 204, 204)),
        ("RGBA", (255, 0, 0, 0), "clear.png", (255, 255, 255)),
    ],
)
def test_colours(tmp_path, mode, colour, name, expected):
    assert pixel(save(tmp_path / name, constant(mode, colour))) == expected


def test_cmyk_jpeg_is_not_inverted(tmp_path):
    path = save(tmp_path / "cmyk.jpg", constant("CMYK", (255, 0, 0, 0)), quality=100)
    with Image.open(path) as image:
        assert image.mode == "CMYK"
    assert np.abs(np.subtract(pixel(path), (0, 255, 255))).max() <= 3


def test_palette(tmp_path):
    image = constant("P", 3)
    image.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 12, 34, 56])
    assert pixel(save(tmp_path / "p.png", image)) == (12, 34, 56)
    assert pixel(save(tmp_path / "p.gif", image)) == (12, 34, 56)
    assert pixel(save(tmp_path / "clear.png", image, transparency=3)) == (255, 255, 255)


def test_a_gray_level_may_be_transparent(tmp_path):
    image = constant("L", 9)
    assert pixel(save(tmp_path / "l.png", image, transparency=9)) == (255, 255, 255)
    assert pixel(save(tmp_path / "l2.png", image, transparency=8)) == (9, 9, 9)


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (128, 0), (129, 1), (257, 1), (32896, 128), (65535, 255)]
)
@pytest.mark.parametrize("name", ["wide.png", "wide.tif", "wide.pgm"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path, name, value, expected):
    image = Image.fromarray(np.full((SIDE, SIDE), value, np.uint16))
    if name == "wide.pgm":
        data = np.full((SIDE, SIDE), value, ">u2").tobytes()
        (tmp_path / name).write_bytes(b"P5 8 8 65535\n" + data)
    else:
        save(tmp_path / name, image)
    assert pixel(tmp_path / name) == (expected,) * 3


def test_a_level_of_sixteen_bits_may_be_transparent(tmp_path):
    image = Image.fromarray(np.full((SIDE, SIDE), 257, np.uint16))
    assert pixel(save(tmp_path / "clear.png", image, transparency=257)) == (255, 255, 255)
    assert pixel(save(tmp_path / "other.png", image, transparency=256)) == (1, 1, 1)


def test_sixteen_bits_a_colour(tmp_path):
    row = struct.pack(">HHH", 65535, 32896, 257) * SIDE
    (tmp_path / "wide.png").write_bytes(raw_png(SIDE, SIDE, 16, 2, [row] * SIDE))
    assert pixel(tmp_path / "wide.png") == (255, 128, 1)


@pytest.mark.parametrize(("orientation", "corner"), [(1, 0), (3, 3), (6, 1), (8, 2)])
def test_photographs_are_turned_upright(tmp_path, orientation, corner):
    pixels = np.zeros((4, 10, 3), np.uint8)
    pixels[:2, :5] = 255  # white where the camera's first corner is
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "a.png", Image.fromarray(pixels), exif=exif)
    square, size = read_square(path, 2)
    assert size == ((10, 4) if orientation in (6, 8) else (4, 10))
    expected = np.zeros(4)
    expected[corner] = 255
    assert np.abs(square[..., 0].flatten() - expected).max() < 50  # the filter's overlap
    assert square[..., 0].flatten().argmax() == corner


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"XX", b"MM\0*garbage\xff\xff\xff\xff", b""])
def test_damaged_exif_turns_nothing(tmp_path, exif):
    image = constant("RGB", (10, 20, 30))
    assert pixel(save(tmp_path / "a.png", image, exif=b"Exif\0\0" + exif)) == (10, 20, 30)


def test_all_orientations_as_pillow_turns_them(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = save(tmp_path / "a.png", Image.fromarray(pixels), exif=exif)
        with Image.open(path) as image:
            expected = np.asarray(ImageOps.exif_transpose(image))
        assert np.array_equal(read_square(path, SIDE)[0], expected)


def test_the_same_bytes_from_every_pillow(tmp_path):
    """Of an image that is enlarged in width and reduced in height, or the other way round."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 25, 3), dtype=np.uint8)
    tall = save(tmp_path / "tall.png", Image.fromarray(pixels))
    wide = save(tmp_path / "wide.png", Image.fromarray(pixels.transpose(1, 0, 2)))
    # As Pillow 10.4 to 12.0 make them in one call; 13.0 makes others of the tall one.
    found = [hashlib.sha256(read_square(path, 32)[0]).hexdigest()[:16] for path in (tall, wide)]
    assert found == ["385f24b9271d3b92", "c5fdb12002cf377e"]


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "CMYK"])
def test_turned_tiffs_are_not_sheared(tmp_path, mode):
    """Pillow turns them itself, and gets those that it maps into memory wrong."""
    pixels = np.zeros((SIDE // 2, SIDE, 3), np.uint8)
    pixels[:, : SIDE // 2] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera's left is up
    path = save(tmp_path / "a.tif", Image.fromarray(pixels).convert(mode), exif=exif)
    square, size = read_square(path, SIDE)
    assert size == (SIDE, SIDE // 2)
    assert square[0].min() == 255
    assert square[-1].max() == 0


def test_squashing_averages_instead_of_skipping_pixels(tmp_path):
    stripes = np.zeros((64, 96, 3), np.uint8)
    stripes[:, ::2] = 255
    square, size = read_square(save(tmp_path / "a.png", Image.fromarray(stripes)), SIDE)
    assert size == (64, 96)
    assert np.abs(square.astype(int) - 127).max() <= 8


def test_the_right_size_is_left_alone(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    square, _ = read_square(save(tmp_path / "a.png", Image.fromarray(pixels)), SIDE)
    assert np.array_equal(square, pixels)


def test_of_an_animation_the_first_frame(tmp_path):
    frames = [constant("RGB", colour) for colour in ((255, 0, 0), (0, 0, 255))]
    path = save(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    assert pixel(path) == (255, 0, 0)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.png", b"", r"^is empty \(0 bytes\)$"),
        ("a.jpg", b"hello, world", "^is not an image that Pillow can read$"),
        ("a.png", encoded("PNG")[:-3000], "^is truncated or damaged: "),
        ("a.jpg", encoded("JPEG")[:-1000], "^is truncated or damaged: image file is truncated"),
        ("a.webp", encoded("WEBP")[:-500], "^is truncated or damaged: "),
        ("a.gif", encoded("GIF")[:-2000], "^is truncated or damaged: "),
        ("a.bmp", encoded("BMP")[:-2000], "^is truncated or damaged: image file is truncated"),
        ("a.tif", encoded("TIFF")[:-2000], "^is truncated or damaged: |^is not an image"),
        (
            "bomb.png",
            raw_png(9500, 9500, 8, 2, [b""]),
            "^has 9500 x 9500 pixels; more than 89,478,485 are taken for a decompression bomb$",
        ),
        (
            "bomb.png",
            raw_png(200_000, 200_000, 8, 2, [b""]),
            "^has far too many pixels; more than 89,478,485 are taken for a decompression bomb$",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_cannot_be_read_says_why(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableImageError, match=message):
        read_square(tmp_path / name, SIDE)


def test_damaged_pixels(tmp_path):
    data = bytearray(encoded("PNG"))
    data[len(data) // 2] ^= 255
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(UnreadableImageError, match="is truncated or damaged: "):
        read_square(tmp_path / "a.png", SIDE)


def test_an_image_is_in_memory_once(tmp_path, monkeypatch):
    """Of photographs several hundred megabytes are decoded at a time."""
    path = save(tmp_path / "a.png", constant("RGB", (10, 20, 30)))
    monkeypatch.delattr(Image.Image, "copy")
    assert read_square(path, SIDE // 2)[0][0, 0].tolist() == [10, 20, 30]


def test_numbers_without_a_range(tmp_path):
    path = save(tmp_path / "a.tif", Image.new("F", (SIDE, SIDE), 0.5))
    with pytest.raises(UnreadableImageError, match="has 32 bits a pixel, which have no agreed ran"):
        read_square(path, SIDE)


def test_a_link_to_nothing(tmp_path):
    os.symlink(tmp_path / "gone.png", tmp_path / "a.png")
    with pytest.raises(UnreadableImageError, match="cannot be opened: No such file or directory"):
        read_square(tmp_path / "a.png", SIDE)
