"""What tests of real clients are about: an experiment on digits, and made-up tables of patients."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NAMES = ("east", "north", "south", "west")
FILE = """
rounds = ROUNDS
checkpoint = CHECKPOINT
seed = 1
[data]
name = "digits"
clients = 4
partition = { name = "dirichlet", alpha = 0.5 }
[model]
name = "mlp"
hidden = [16]
[algorithm]
name = "METHOD"
SETTINGS
[local]
lr = 0.1
batch = 16
[evaluate]
every = 10
"""


def written(folder: Path, method: str, settings: str = "", *, rounds: int = 3, checkpoint: int = 1) -> Path:
    """An experiment for four clients, in a file."""
    text = FILE.replace("METHOD", method).replace("SETTINGS", settings)
    path = folder / "experiment.toml"
    path.write_text(text.replace("ROUNDS", str(rounds)).replace("CHECKPOINT", str(checkpoint)), encoding="utf-8")
    return path


def patients(count: int, *, older: float, rng: np.random.Generator) -> str:
    """A table of made-up patients: age and dose decide who is well."""
    rows = ["age,sex,dose,outcome"]
    for _ in range(count):
        age, sex, dose = rng.normal(50 + older, 10), rng.choice(["f", "m"]), rng.exponential(2)
        rows.append(f"{age:.2f},{sex},{dose:.3f},{'well' if age + 5 * dose > 58 else 'ill'}")
    return "\n".join(rows) + "\n"
