"""fedrelay: federated learning on unlike clients, by who trains after whom."""

from fedrelay.system import startup  # noqa: F401 (first: Ctrl-C while all this is imported shows no traceback)

# isort: split
from importlib import import_module

# Whoever checks types takes this name for true. Imported from typing, it makes mypy 2.4 fail when it checks again.
TYPE_CHECKING = False

if TYPE_CHECKING:
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
    from fedrelay.report import results
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
    "results",
    "runs",
    "seeds",
    "start",
    "tasks",
    "train",
    "types",
    "visits",
]

PLACES = {
    **dict.fromkeys(("Change", "method"), "algorithms"),
    **dict.fromkeys(("BadInput", "DroppedClients", "RunFailed"), "errors"),
    **dict.fromkeys(("RoundLog", "Summary"), "runs.log"),
    **dict.fromkeys(("adapted", "advance", "deployed", "start", "train"), "runs.loop"),
    **dict.fromkeys(("Task", "evaluate"), "tasks"),
    **dict.fromkeys(("Adam", "AdamW", "Sgd"), "visits"),
    "Evaluate": "runs.summary",
    "Federation": "data",
    "Recorder": "runs.record",
    "load_model": "studies.loading",
    "results": "report",
}
"""Where the names that are no modules come from."""


def _lazily(name: str) -> object:
    """What is listed, when it is asked for: a process that only passes messages on does not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = import_module(f"{__name__}.{PLACES.get(name, name)}")
    globals()[name] = value = getattr(found, name) if name in PLACES else found
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a name that is not listed stays a mistake for whoever checks types
    __getattr__ = _lazily
