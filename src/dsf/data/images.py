"""One image file, whatever its kind, as a square of RGB bytes."""

import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from dsf.data.source import Bytes

EXTENSIONS = frozenset(
    (".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".jfif", ".pbm", ".pgm", ".png", ".pnm")
) | frozenset((".ppm", ".tif", ".tiff", ".webp"))

# As RGB this is 256 MiB. Far larger pictures are either a mistake or made to exhaust memory.
MAX_PIXELS = 89_478_485

# What undoes each of the orientations a camera may note.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImageError(ValueError):
    """An image cannot be read; the message says why, without the path."""


def read_square(path: Path, size: int) -> tuple[Bytes, tuple[int, int]]:
    """An image squashed to (size, size, 3), and its height and width before that.

    Turned as its EXIF entry says; what is transparent shows white; 16 bits are scaled to 8; of an
    animation the first frame. Reduced by Pillow's bicubic filter, which spans all the pixels that
    fall into one, first in width and then in height. Colour profiles are not applied.
    """
    try:
        if not path.stat().st_size:
            raise UnreadableImageError("is empty (0 bytes)")
        # Not by its name: Pillow then maps some files, and shears those TIFFs that it must turn.
        with path.open("rb") as file, Image.open(file) as image:
            pixels = image.width * image.height
            if pixels > MAX_PIXELS:
                raise UnreadableImageError(_gigantic(f"{image.width} x {image.height} pixels"))
            colour = _to_rgb(image)
    except UnreadableImageError:
        raise
    except UnidentifiedImageError:
        raise UnreadableImageError("is not an image that Pillow can read") from None
    except Image.DecompressionBombError:
        raise UnreadableImageError(_gigantic("far too many pixels")) from None
    except MemoryError:
        raise  # the machine's fault, not the file's
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise UnreadableImageError(f"cannot be opened: {error.strerror}") from error
        # Decoders fail on damaged files in every way: OSError, SyntaxError, struct.error, ...
        raise UnreadableImageError(f"is truncated or damaged: {error}") from error
    height, width = colour.height, colour.width
    # By itself Pillow takes, from version 13 on, whichever of the two first is less work, and the
    # bytes of a store would depend on its version.
    narrow = colour.resize((size, height), Image.Resampling.BICUBIC)
    square = narrow.resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(square), (height, width)


def _gigantic(what: str) -> str:
    return f"has {what}; more than {MAX_PIXELS:,} are taken for a decompression bomb"


def _upright(image: Image.Image) -> Image.Image:
    turn = None
    with suppress(OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error):
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    return image if turn is None else image.transpose(turn)  # a damaged entry turns nothing


def _to_rgb(image: Image.Image) -> Image.Image:
    image.load()
    kind, mode = image.format, image.mode
    image = _upright(image)
    if mode.startswith("I;16") or (mode == "I" and kind in ("PNG", "PPM")):
        # Pillow's own conversion would clip 16 bits at 255.
        wide = np.asarray(image).astype(np.int64)
        if (clear := image.info.get("transparency")) is not None:  # a level
            wide[wide == clear] = 65535
        return Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if mode in ("I", "F"):
        raise UnreadableImageError(
            "has 32 bits a pixel, which have no agreed range; convert it to 8 or 16"
        )
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
