"""Networks: encoders by name, projection heads, and the split BatchNorm."""

from dsf.models.encoders import ENCODERS, create_encoder, feature_dimension
from dsf.models.foreign import load_foreign
from dsf.models.heads import HEADS, create_head
from dsf.models.normalization import SplitBatchNorm, join_batch_norm, split_batch_norm
from dsf.models.pretrained import from_pretrained

__all__ = [
    "ENCODERS",
    "HEADS",
    "SplitBatchNorm",
    "create_encoder",
    "create_head",
    "feature_dimension",
    "from_pretrained",
    "join_batch_norm",
    "load_foreign",
    "split_batch_norm",
]
