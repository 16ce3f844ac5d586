"""MLflow: a store of files, `mlruns` in the folder where the command was given, for all runs together."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedrelay.runs.folder import keep
from fedrelay.runs.trackers.tracker import EVERY_ROUND, Figures, Tracker, named, required

STORE, EXPERIMENT, NOTE = "mlruns", "fedrelay", "mlflow.json"
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
"""Before it is imported: nothing is sent home, and files, which need no data base, are still a store."""
MOST = 100
"""Parameters and metrics that it takes at a time."""


class Mlflow(Tracker):
    """Parameters, metrics by round, and the summary as metrics of the last round."""

    def __init__(self, folder: Path) -> None:
        os.environ.update(QUIET)
        client = required("mlflow", "--mlflow", "mlflow").MlflowClient
        self._entities = required("mlflow.entities", "--mlflow", "mlflow")
        self._client: Any = client(tracking_uri=Path(STORE).resolve().as_uri())
        self._folder, self._run, self._last = folder, "", 0

    def begin(self, settings: Mapping[str, str]) -> int:
        self._run = self._known() or self._made(settings)
        self._client.update_run(self._run, "RUNNING")
        found = self._client.get_run(self._run).data.metrics
        history = self._client.get_metric_history(self._run, EVERY_ROUND) if EVERY_ROUND in found else []
        self._last = max((one.step for one in history), default=0)
        return self._last

    def _known(self) -> str | None:
        """The run that an earlier part has begun, if it is still in the store."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = str(json.loads((self._folder / NOTE).read_bytes())["run"])
            with suppress(Exception):  # removed by hand, or of another store
                return str(self._client.get_run(found).info.run_id)
        return None

    def _made(self, settings: Mapping[str, str]) -> str:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        number = self._client.create_experiment(EXPERIMENT) if experiment is None else experiment.experiment_id
        run: str = self._client.create_run(number, run_name=named(self._folder)).info.run_id
        values = [self._entities.Param(key, value[:6000]) for key, value in settings.items()]
        for start in range(0, len(values), MOST):
            self._client.log_batch(run, params=values[start : start + MOST])
        keep(self._folder / NOTE, json.dumps({"run": run}))
        return run

    def write(self, round: int, figures: Figures) -> None:
        now = int(time.time() * 1000)
        metrics = [self._entities.Metric(name, value, now, round) for name, value in figures.items()]
        for start in range(0, len(metrics), MOST):
            self._client.log_batch(self._run, metrics=metrics[start : start + MOST])
        self._last = round

    def end(self, summary: Figures | None) -> None:
        if summary is not None:
            self.write(self._last, {f"summary/{name}": value for name, value in summary.items()})
        self._client.set_terminated(self._run, "KILLED" if summary is None else "FINISHED")
