"""From an encoder to numbers: how good its features are."""

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
