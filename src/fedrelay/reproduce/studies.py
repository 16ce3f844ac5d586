"""The kinds of study that an item can be."""

from __future__ import annotations

from fedrelay.reproduce.feature_study import FEATURES
from fedrelay.reproduce.formula_study import FORMULAS
from fedrelay.reproduce.groups_study import GROUPS
from fedrelay.reproduce.runs_study import COMPARE
from fedrelay.reproduce.splits_study import SPLITS
from fedrelay.reproduce.study import Study
from fedrelay.reproduce.tune_study import TUNE

STUDIES: dict[str, Study] = {
    "compare": COMPARE,
    "groups": GROUPS,
    "tune": TUNE,
    "features": FEATURES,
    "formulas": FORMULAS,
    "splits": SPLITS,
}
"""By the name that an item says."""
