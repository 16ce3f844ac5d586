"""Logbooks of other programs: TensorBoard, MLflow and Weights & Biases (offline). None of them sends anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrelay.runs.trackers.mlflow import Mlflow
from fedrelay.runs.trackers.tensorboard import TensorBoard
from fedrelay.runs.trackers.tracker import Tracker, tracked
from fedrelay.runs.trackers.wandb import Wandb

TRACKERS: dict[str, type[TensorBoard | Mlflow | Wandb]] = {"tensorboard": TensorBoard, "mlflow": Mlflow, "wandb": Wandb}


def trackers(names: Sequence[str], folder: Path) -> list[Tracker]:
    """The logbooks of these names, for the run in this folder; a package that is missing is told."""
    return [TRACKERS[name](folder) for name in names]


__all__ = ["TRACKERS", "Tracker", "tracked", "trackers"]
