"""The grouping laboratory: groupings built and compared without training."""

from fedrelay.studies.groupings.request import Request, read
from fedrelay.studies.groupings.results import claim_for, fingerprint, markdown, table, write
from fedrelay.studies.groupings.study import Findings, Made, Pretrained, study

__all__ = [
    "Findings",
    "Made",
    "Pretrained",
    "Request",
    "claim_for",
    "fingerprint",
    "markdown",
    "read",
    "study",
    "table",
    "write",
]
