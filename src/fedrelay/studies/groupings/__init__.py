"""The grouping laboratory: groupings built and compared without training."""

from fedrelay.studies.groupings.request import Asked, read
from fedrelay.studies.groupings.results import markdown, table, write
from fedrelay.studies.groupings.study import Findings, Made, Pretrained, study

__all__ = ["Asked", "Findings", "Made", "Pretrained", "markdown", "read", "study", "table", "write"]
