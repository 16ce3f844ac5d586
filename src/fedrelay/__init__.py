"""fedrelay: federated learning on unlike clients, by who trains after whom."""

from fedrelay import algorithms, config, data, engines, merges, models, plans, report
from fedrelay.data import Federation
from fedrelay.errors import BadInput, RunFailed
from fedrelay.runs.loop import advance, deployed, start, train
from fedrelay.runs.record import Evaluate, Recorder
from fedrelay.tasks.task import Task
from fedrelay.visits.sgd import Sgd

__version__ = "0.1.0"

__all__ = [
    "BadInput",
    "Evaluate",
    "Federation",
    "Recorder",
    "RunFailed",
    "Sgd",
    "Task",
    "advance",
    "algorithms",
    "config",
    "data",
    "deployed",
    "engines",
    "merges",
    "models",
    "plans",
    "report",
    "start",
    "train",
]
