"""The whole vocabulary: the records that travel, and the parts that can be swapped.

A run repeats: *plan* chains of clients, *relay* a baton along each chain, *merge* the batons that came back.

A part inherits from its abstract class here, which declares every member that others look at: what has a default need
not be written.
"""

from fedrelay.types.parts import Algorithm, Barrier, Engine, Hearing, Kind, Merge, Plan, Planned, Survey, Trait, Work
from fedrelay.types.records import (
    ATTACKED,
    BOUNDED,
    DISAGREED,
    GIVEN,
    LAST_GLOBAL,
    LATER,
    NOT_JOINED,
    POOL_DISTANCES,
    SKIPPED,
    Baton,
    Chain,
    Drop,
    Hop,
    Outcome,
    Place,
    Report,
    Result,
    State,
    Tree,
    Underway,
    Vector,
    Visit,
)

__all__ = [
    "ATTACKED",
    "BOUNDED",
    "DISAGREED",
    "GIVEN",
    "LAST_GLOBAL",
    "LATER",
    "NOT_JOINED",
    "POOL_DISTANCES",
    "SKIPPED",
    "Algorithm",
    "Barrier",
    "Baton",
    "Chain",
    "Drop",
    "Engine",
    "Hearing",
    "Hop",
    "Kind",
    "Merge",
    "Outcome",
    "Place",
    "Plan",
    "Planned",
    "Report",
    "Result",
    "State",
    "Survey",
    "Trait",
    "Tree",
    "Underway",
    "Vector",
    "Visit",
    "Work",
]
