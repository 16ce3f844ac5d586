"""The kinds of study that an item can be."""

from __future__ import annotations

from fedrelay.studies.reproduce.feature_study import FEATURES
from fedrelay.studies.reproduce.formula_study import FORMULAS
from fedrelay.studies.reproduce.groups_study import GROUPS
from fedrelay.studies.reproduce.recovery_study import RECOVERY
from fedrelay.studies.reproduce.runs_study import COMPARE
from fedrelay.studies.reproduce.splits_study import SPLITS
from fedrelay.studies.reproduce.study import Study
from fedrelay.studies.reproduce.tune_study import TUNE

STUDIES: dict[str, Study] = {
    "compare": COMPARE,
    "groups": GROUPS,
    "tune": TUNE,
    "features": FEATURES,
    "formulas": FORMULAS,
    "splits": SPLITS,
    "recovery": RECOVERY,
}
"""By the name that an item says."""
