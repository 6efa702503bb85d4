"""Training objectives: encoders and a loss, from views of images to a scalar."""

from dsf.methods._base import Method, MethodOutput
from dsf.methods.moco import MoCo
from dsf.methods.mocov3 import MoCoV3
from dsf.methods.simclr import SimCLR

__all__ = ["Method", "MethodOutput", "MoCo", "MoCoV3", "SimCLR"]
