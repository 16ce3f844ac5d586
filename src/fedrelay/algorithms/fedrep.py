"""FedRep: every client first fits its own head to the common body, and then the body to its head."""

from __future__ import annotations

from fedrelay.algorithms.change import Change
from fedrelay.errors import within
from fedrelay.visits.private import Private


def fedrep(*, head_epochs: int = 10) -> Change:
    """As FedPer, but a visit trains the head alone first, then the body alone: what is common is for good heads.

    When heads are small beside the body and few rounds matter more than work at the clients.

    Papers: head_epochs 10, `[local] epochs` 1 or 5 (Collins et al. 2021)

    Args:
        head_epochs: passes in which only the head is trained; the passes of `[local]` follow for the body.

    Reference: [Collins et al. 2021](https://arxiv.org/abs/2102.07078), Alg. 1
    """
    within("head_epochs", head_epochs, least=1)
    return Change(private=Private(("head",), first=head_epochs))
