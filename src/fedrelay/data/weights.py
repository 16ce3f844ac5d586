"""How much a class should count, so that rare ones are not drowned by frequent ones."""

from __future__ import annotations

import torch

from fedrelay.data.federation import Federation
from fedrelay.errors import BadInput


def class_weights(federation: Federation) -> torch.Tensor:
    """Examples divided by (classes times examples of the class), from the counts of all clients together.

    Every class then weighs the same in total, and the mean weight of an example is 1. Clients would send counts only.
    """
    if not federation.source.train.classified:
        raise BadInput(f"class weights need one class per example, which {federation.source.name} has not")
    counts = federation.label_counts().sum(axis=0)
    missing = [
        federation.source.class_names[label] if federation.source.class_names else str(label)
        for label in (counts == 0).nonzero()[0]
    ]
    if missing:
        raise BadInput(f"no client has an example of class {', '.join(missing)}, so it has no weight")
    return torch.from_numpy(counts.sum() / (len(counts) * counts)).float()
