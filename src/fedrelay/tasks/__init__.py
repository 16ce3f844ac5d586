"""What is learned: a model, its loss and its metrics; where it is trained; and how the result predicts."""

from fedrelay.tasks.losses import LOSSES, PADDING, Accuracy, CrossEntropy, Loss, Metric, OutputLoss
from fedrelay.tasks.parts import PRIVATE
from fedrelay.tasks.predictors import (
    EVALUATION_BATCH,
    Ensemble,
    OneModel,
    OwnModels,
    PerClient,
    Predictor,
    evaluate,
    evaluate_clients,
)
from fedrelay.tasks.task import Task
from fedrelay.tasks.workspaces import Workspaces

__all__ = [
    "EVALUATION_BATCH",
    "LOSSES",
    "PADDING",
    "PRIVATE",
    "Accuracy",
    "CrossEntropy",
    "Ensemble",
    "Loss",
    "Metric",
    "OneModel",
    "OutputLoss",
    "OwnModels",
    "PerClient",
    "Predictor",
    "Task",
    "Workspaces",
    "evaluate",
    "evaluate_clients",
]
