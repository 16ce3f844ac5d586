"""The grouping laboratory: groupings built and compared without training."""

from fedrelay.studies.groupings.request import Request, read
from fedrelay.studies.groupings.results import markdown, table, write
from fedrelay.studies.groupings.study import Findings, Made, Pretrained, study

__all__ = ["Findings", "Made", "Pretrained", "Request", "markdown", "read", "study", "table", "write"]
