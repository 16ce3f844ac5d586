"""What is learned: a model, its loss and its metrics; where it is trained; and how the result predicts."""

from fedrelay.tasks.losses import LOSSES, PADDING, Accuracy, CrossEntropy, Loss, Metric, OutputLoss
from fedrelay.tasks.predictors import EVALUATION_BATCH, Ensemble, OneModel, PerClient, Predictor, evaluate
from fedrelay.tasks.task import Task
from fedrelay.tasks.workspaces import Workspaces

__all__ = [
    "EVALUATION_BATCH",
    "LOSSES",
    "PADDING",
    "Accuracy",
    "CrossEntropy",
    "Ensemble",
    "Loss",
    "Metric",
    "OneModel",
    "OutputLoss",
    "PerClient",
    "Predictor",
    "Task",
    "Workspaces",
    "evaluate",
]
