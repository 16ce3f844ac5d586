"""Whether fedrelay can work here: what there is, what is missing, and whether a tiny run gives the same bits twice."""

from fedrelay.studies.doctor.examine import examine
from fedrelay.studies.doctor.finding import Finding

__all__ = ["Finding", "examine"]
