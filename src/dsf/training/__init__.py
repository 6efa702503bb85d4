"""Training: the loop, its schedules and optimisers, its metrics and checkpoints."""

from dsf.training.checkpoints import Checkpoints
from dsf.training.health import NonFiniteLossError
from dsf.training.loop import Callback, Loop, Plan
from dsf.training.metrics import MetricsFile, read_metrics
from dsf.training.optimisers import LARS, create_optimiser, parameter_groups
from dsf.training.schedules import Schedule
from dsf.training.signals import Interrupted

__all__ = [
    "LARS",
    "Callback",
    "Checkpoints",
    "Interrupted",
    "Loop",
    "MetricsFile",
    "NonFiniteLossError",
    "Plan",
    "Schedule",
    "create_optimiser",
    "parameter_groups",
    "read_metrics",
]
