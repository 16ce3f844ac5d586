"""What happens at a client: pieces of Work."""

from fedrelay.visits.diversity import Diversity
from fedrelay.visits.loss_terms import Discrepancy, Distillation, check_features, looking_at
from fedrelay.visits.model_pool import ModelPool, Pooling
from fedrelay.visits.optimisers import OPTIMISERS, Adam, AdamW, Optimiser, Sgd
from fedrelay.visits.schedules import SCHEDULES, Schedule
from fedrelay.visits.task2vec import Task2Vec
from fedrelay.visits.terms import Batch, Effect, Force, Proximal, Sharpness, Term
from fedrelay.visits.training import Training
from fedrelay.visits.traits import TRAITS, ClassHistogram, ClassifierWeights, Confidence

PULLS: dict[str, type[Term]] = {"proximal": Proximal}
OBJECTIVES: dict[str, type[Term]] = {"distillation": Distillation, "discrepancy": Discrepancy}
TERMS: dict[str, type[Term]] = {**PULLS, "sharpness": Sharpness, "diversity": Diversity, **OBJECTIVES}
"""Those that need nothing from the server, so that any method can have them."""

__all__ = [
    "OBJECTIVES",
    "OPTIMISERS",
    "PULLS",
    "SCHEDULES",
    "TERMS",
    "TRAITS",
    "Adam",
    "AdamW",
    "Batch",
    "ClassHistogram",
    "ClassifierWeights",
    "Confidence",
    "Discrepancy",
    "Distillation",
    "Diversity",
    "Effect",
    "Force",
    "ModelPool",
    "Optimiser",
    "Pooling",
    "Proximal",
    "Schedule",
    "Sgd",
    "Sharpness",
    "Task2Vec",
    "Term",
    "Training",
    "check_features",
    "looking_at",
]
