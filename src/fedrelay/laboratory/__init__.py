"""The grouping laboratory: groupings built and compared without training."""

from fedrelay.laboratory.asked import Asked, read
from fedrelay.laboratory.show import markdown, table, write
from fedrelay.laboratory.study import Findings, Made, Pretrained, study

__all__ = ["Asked", "Findings", "Made", "Pretrained", "markdown", "read", "study", "table", "write"]
