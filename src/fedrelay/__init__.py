"""fedrelay: federated learning on unlike clients, by who trains after whom."""

from fedrelay.system import startup  # noqa: F401 (first: Ctrl-C while all this is imported shows no traceback)

# isort: split
from fedrelay import (
    algorithms,
    config,
    data,
    engines,
    errors,
    merges,
    models,
    plans,
    report,
    runs,
    seeds,
    tasks,
    types,
    visits,
)
from fedrelay.algorithms import Change, method
from fedrelay.data import Federation
from fedrelay.errors import BadInput, DroppedClients, RunFailed
from fedrelay.runs.log import RoundLog, Summary
from fedrelay.runs.loop import adapted, advance, deployed, start, train
from fedrelay.runs.record import Recorder
from fedrelay.runs.summary import Evaluate
from fedrelay.studies.loading import load_model
from fedrelay.tasks import Task, evaluate
from fedrelay.visits import Adam, AdamW, Sgd

__version__ = "0.2.0"

__all__ = [
    "Adam",
    "AdamW",
    "BadInput",
    "Change",
    "DroppedClients",
    "Evaluate",
    "Federation",
    "Recorder",
    "RoundLog",
    "RunFailed",
    "Sgd",
    "Summary",
    "Task",
    "__version__",
    "adapted",
    "advance",
    "algorithms",
    "config",
    "data",
    "deployed",
    "engines",
    "errors",
    "evaluate",
    "load_model",
    "merges",
    "method",
    "models",
    "plans",
    "report",
    "runs",
    "seeds",
    "start",
    "tasks",
    "train",
    "types",
    "visits",
]
