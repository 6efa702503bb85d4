"""Corruptions of images: those of CIFAR-10-C and ImageNet-C, made in batches or read from files.

They follow the programs that made the published sets, down to the rounding of the libraries used
there: bytes are Pillow's for JPEG and pixelate, ImageMagick's for motion blur, and OpenCV's,
SciPy's and scikit-image's elsewhere, given the same random numbers. Known differences:

- random numbers are our own, so that single images differ from the published ones;
- where the exact result is a whole level, rounding errors do not cut it to the one below;
- elastic transform rounds its affine map to 1/32 of a pixel in one step where OpenCV 4 takes two,
  and OpenCV 5 does not round at all;
- an image without any drop of water is left as it is; the published sets divide 0 by 0;
- frost, fog and elastic transform extend to sizes and shapes other than 32 x 32 and 224 x 224.
"""

from dsf.data.corruptions.apply import CORRUPTIONS, EXTRA, corrupt
from dsf.data.corruptions.constants import SEVERITIES
from dsf.data.corruptions.published import Published, load_published
from dsf.data.corruptions.sheet import corruption_sheet

__all__ = [
    "CORRUPTIONS",
    "EXTRA",
    "SEVERITIES",
    "Published",
    "corrupt",
    "corruption_sheet",
    "load_published",
]
