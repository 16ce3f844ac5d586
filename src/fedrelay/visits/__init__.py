"""What happens at a client: pieces of Work."""

from fedrelay.visits.loss_terms import Discrepancy, Distillation
from fedrelay.visits.optimisers import OPTIMISERS, Adam, AdamW, Sgd
from fedrelay.visits.terms import Effect, Force, Proximal, Sharpness, Term
from fedrelay.visits.training import Training

PULLS: dict[str, type[Term]] = {"proximal": Proximal}
OBJECTIVES: dict[str, type[Term]] = {"distillation": Distillation, "discrepancy": Discrepancy}
TERMS: dict[str, type[Term]] = {**PULLS, "sharpness": Sharpness, **OBJECTIVES}
"""Those that need nothing from the server, so that any method can have them."""

__all__ = [
    "OBJECTIVES",
    "OPTIMISERS",
    "PULLS",
    "TERMS",
    "Adam",
    "AdamW",
    "Discrepancy",
    "Distillation",
    "Effect",
    "Force",
    "Proximal",
    "Sgd",
    "Sharpness",
    "Term",
    "Training",
]
