"""Images inside the page itself."""

import base64
import io
from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from dsf.experiments.page.markup import Markup, tag

_LARGEST = 200_000  # bytes of a picture that may be kept without loss
_WIDEST = 1200  # pixels, more than a page shows


def encoded(picture: Image.Image, format: str, **options: object) -> bytes:
    """The bytes of a picture's file."""
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def data_uri(picture: Image.Image) -> str:
    """The picture as an address that holds it: without loss, unless that is large."""
    content = encoded(picture, "WEBP", lossless=True, method=6, exact=True)
    if len(content) > _LARGEST:
        small = picture.copy()
        small.thumbnail((_WIDEST, 10 * _WIDEST))
        content = encoded(small, "WEBP", quality=82, method=6)
    return f"data:image/webp;base64,{base64.b64encode(content).decode('ascii')}"


def image(picture: Image.Image, alternative: str, **attributes: object) -> Markup:
    """A picture with a text in its place for those who cannot see it."""
    width, height = picture.size
    return tag(
        "img",
        src=data_uri(picture),
        alt=alternative,
        width=width,
        height=height,
        **attributes,
    )


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
                image(from_tensor(pixels), f"training image, {name}, {verdict} class"),
                tag("span", tag("b", sign, aria_hidden="true"), " ", name),
                class_=f"near {verdict}",
            )
        )
    return tag("ol", *entries, class_="strip")
