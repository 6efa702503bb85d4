"""From an encoder to numbers: how good its features are.

A ``Subject`` is any encoder with the images it is evaluated on; a ``Protocol`` evaluates it.

>>> from torch import nn
>>> from dsf.data import load
>>> train, test = (LabelledImages(load("embedded", name)) for name in ("train", "test"))
>>> encoder = nn.Sequential(nn.AvgPool2d(8), nn.Flatten())
>>> subject = Subject(encoder, Task(train, test, classes=10))
>>> result = KNN(k=20).evaluate(subject)
>>> round(result.numbers["backbone"], 2), result.protocol["k"]
(0.37, 20)
"""

from dsf.evaluation.features import extract
from dsf.evaluation.finetune import Finetune
from dsf.evaluation.geometry import Geometry
from dsf.evaluation.images import LabelledImages
from dsf.evaluation.knn import KNN, KNNResult, knn
from dsf.evaluation.linear import LinearFast, LinearResult, choose_weight_decay, linear_fast
from dsf.evaluation.linear_paper import LinearPaper
from dsf.evaluation.protocol import Protocol, Result
from dsf.evaluation.robustness import Corruption
from dsf.evaluation.scores import Scores, score
from dsf.evaluation.subject import Features, Subject, Task
from dsf.evaluation.subsets import few_labels, hold_out

__all__ = [
    "KNN",
    "Corruption",
    "Features",
    "Finetune",
    "Geometry",
    "KNNResult",
    "LabelledImages",
    "LinearFast",
    "LinearPaper",
    "LinearResult",
    "Protocol",
    "Result",
    "Scores",
    "Subject",
    "Task",
    "choose_weight_decay",
    "extract",
    "few_labels",
    "hold_out",
    "knn",
    "linear_fast",
    "score",
]
