"""Data sets of picture files, most of them for transfer: one file each."""

from dsf.data.sets.aircraft import AIRCRAFT
from dsf.data.sets.caltech101 import CALTECH101
from dsf.data.sets.dtd import DTD
from dsf.data.sets.flowers102 import FLOWERS102
from dsf.data.sets.food101 import FOOD101
from dsf.data.sets.imagenet import IMAGENET, IMAGENET100
from dsf.data.sets.imagenette import IMAGENETTE
from dsf.data.sets.pets import PETS
from dsf.data.sets.stl10 import STL10
from dsf.data.sets.tiny_imagenet import TINY_IMAGENET

SETS = (
    *(AIRCRAFT, CALTECH101, DTD, FLOWERS102, FOOD101, IMAGENET, IMAGENET100, IMAGENETTE),
    *(PETS, STL10, TINY_IMAGENET),
)
