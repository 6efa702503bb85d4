"""From files to a store of decoded images, and from there to batches and views."""

from dsf.data.batches import Batches
from dsf.data.forms import ViewBatch
from dsf.data.layout import data_root
from dsf.data.loader import ViewLoader
from dsf.data.registry import DATASETS, load, open_store, prepare
from dsf.data.sampler import EpochSampler
from dsf.data.source import ArraySource, Chunk, Content, DataSet, LeftOut, Metric, Request, Source
from dsf.data.split import Split
from dsf.data.store import Store
from dsf.data.stream import Batch
from dsf.data.writer import BrokenImagesError

__all__ = [
    "DATASETS",
    "ArraySource",
    "Batch",
    "Batches",
    "BrokenImagesError",
    "Chunk",
    "Content",
    "DataSet",
    "EpochSampler",
    "LeftOut",
    "Metric",
    "Request",
    "Source",
    "Split",
    "Store",
    "ViewBatch",
    "ViewLoader",
    "data_root",
    "load",
    "open_store",
    "prepare",
]
