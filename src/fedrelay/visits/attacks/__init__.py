"""What attackers do at a client."""

from __future__ import annotations

from fedrelay.visits.attacks.attack import Attack, Attacked, Sending
from fedrelay.visits.attacks.backdoor import BACKDOOR_SUCCESS, Backdoor
from fedrelay.visits.attacks.labels import ATTACKED_ACCURACY, Labels
from fedrelay.visits.attacks.recovery import Recovery
from fedrelay.visits.attacks.updates import Lazy, Noise, Replacement, Scaled, SignFlip

AT_CLIENTS: dict[str, type[Attack]] = {
    "labels": Labels,
    "backdoor": Backdoor,
    "noise": Noise,
    "sign_flip": SignFlip,
    "scaled": Scaled,
    "replacement": Replacement,
    "lazy": Lazy,
    "recovery": Recovery,
}
"""Attacks that happen in a visit, whatever the others do."""

__all__ = [
    "ATTACKED_ACCURACY",
    "AT_CLIENTS",
    "BACKDOOR_SUCCESS",
    "Attack",
    "Attacked",
    "Backdoor",
    "Labels",
    "Lazy",
    "Noise",
    "Recovery",
    "Replacement",
    "Scaled",
    "Sending",
    "SignFlip",
]
