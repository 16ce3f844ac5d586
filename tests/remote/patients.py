"""Made-up tables of patients."""

from __future__ import annotations

import numpy as np


def patients(count: int, *, older: float, rng: np.random.Generator) -> str:
    """A table of made-up patients: age and dose decide who is well."""
    rows = ["age,sex,dose,outcome"]
    for _ in range(count):
        age, sex, dose = rng.normal(50 + older, 10), rng.choice(["f", "m"]), rng.exponential(2)
        rows.append(f"{age:.2f},{sex},{dose:.3f},{'well' if age + 5 * dose > 58 else 'ill'}")
    return "\n".join(rows) + "\n"
