"""Images inside the page itself."""

import base64
import io
from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from dsf.experiments.page.markup import Markup, tag

_EXACT = 200_000  # bytes of a picture that may be kept without loss
_ENLARGED = 64  # pixels of a side, up to which pictures are shown larger than they are
_WIDEST = 1200  # pixels, more than a page shows


def encoded(picture: Image.Image, format: str, **options: object) -> bytes:
    """The bytes of a picture's file."""
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def data_uri(picture: Image.Image, exact: bool = True) -> str:
    """The picture as an address that holds it.

    Args:
        picture: of any size.
        exact: without loss, unless that takes more than 200 kB.
    """
    content = encoded(picture, "WEBP", lossless=True, method=6, exact=True) if exact else b""
    if not exact or len(content) > _EXACT:
        small = picture.copy()
        small.thumbnail((_WIDEST, 10 * _WIDEST))
        content = encoded(small, "WEBP", quality=82, method=6)
    return f"data:image/webp;base64,{base64.b64encode(content).decode('ascii')}"


def image(
    picture: Image.Image, alternative: str, exact: bool = True, **attributes: object
) -> Markup:
    """A picture with a text in its place for those who cannot see it."""
    width, height = picture.size
    source = data_uri(picture, exact)
    return tag("img", src=source, alt=alternative, width=width, height=height, **attributes)


def thumbnail(pixels: Tensor, alternative: str) -> Markup:
    """A (3, H, W) image in uint8, to be shown as large as a stamp.

    Small ones are enlarged and show their pixels; others need not be kept to the last bit.
    """
    picture = from_tensor(pixels)
    small = max(picture.size) <= _ENLARGED
    return image(picture, alternative, exact=small, class_=None if small else "large")


def from_tensor(pixels: Tensor) -> Image.Image:
    """A (3, H, W) image in uint8."""
    if pixels.dtype != torch.uint8 or pixels.dim() != 3 or pixels.shape[0] != 3:
        raise ValueError(
            f"pixels must be (3, H, W) in uint8; got {tuple(pixels.shape)} in {pixels.dtype}"
        )
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().cpu().numpy())


def neighbour_strip(images: Tensor, names: Sequence[str], truth: str) -> Markup:
    """Images in order, each with the name of its class and a tick or a cross.

    Args:
        images: (k, 3, H, W) in uint8, the nearest first.
        names: of their classes.
        truth: the class that is right.
    """
    entries = []
    for pixels, name in zip(images, names, strict=True):
        right = name == truth
        sign, verdict = ("\N{CHECK MARK}", "right") if right else ("\N{MULTIPLICATION X}", "wrong")
        entries.append(
            tag(
                "li",
                thumbnail(pixels, f"training image, {name}, {verdict} class"),
                tag("span", tag("b", sign, aria_hidden="true"), " ", name),
                class_=f"near {verdict}",
            )
        )
    return tag("ol", *entries, class_="strip")
