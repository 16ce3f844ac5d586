"""Invented runs over seeds, for the page in a browser: every number of theirs is known, and none of it comes from the
report."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from random import Random

from invented_runs import line_of, run_folder

ROUNDS, SEEDS, METHODS = 12, range(6), {"FedAvg": 0.6, "FedSeq": 0.9}
CLIENTS, CLASSES = 6, ("cat", "<dog>", "cow")


def values_of(method: str, seed: int) -> list[float]:
    """The accuracy of every round: it rises to about the method's best, and sways."""
    sway = Random(f"{method} {seed}")
    top = METHODS[method]
    return [round(top * number / ROUNDS + sway.uniform(-0.04, 0.04), 4) for number in range(1, ROUNDS + 1)]


def bytes_of(method: str, seed: int) -> list[int]:
    """What a round of it sends."""
    return [1000 + 10 * seed + (500 if method == "FedSeq" else 0)] * ROUNDS


def chains_of(seed: int, number: int) -> list[list[int]]:
    """Two chains of three clients, in another order every round."""
    order = list(range(CLIENTS))
    Random(100 * seed + number).shuffle(order)
    return [order[:3], order[3:]]


def lost_of(seed: int) -> dict[str, object]:
    """Who is lost in round 2: the first of the second chain."""
    return {"client": chains_of(seed, 2)[1][0], "chain": 1, "hop": 0, "reason": "gone"}


def seeds_in(folder: Path) -> Path:
    """A folder of runs: folder/METHOD/seed-N."""
    for method in METHODS:
        for seed in SEEDS:
            lines = [
                line_of(
                    *(number, value),
                    bytes={"server_to_client": sent, "client_to_server": 0, "client_to_client": 0},
                    simulated_seconds=2.0 + seed,
                    order=chains_of(seed, number),
                    drops=[{"client": chains_of(seed, 2)[1][0], "chain": 1, "hop": 0, "reason": "gone"}]
                    if number == 2
                    else [],
                )
                for number, (value, sent) in enumerate(
                    zip(values_of(method, seed), bytes_of(method, seed), strict=True), 1
                )
            ]
            made = folder / method / f"seed-{seed}"
            last = sum(values_of(method, seed)[-5:]) / 5
            run_folder(made, lines, algorithm=method.lower(), rounds=ROUNDS, seed=seed, accuracy=last)
            main = [client % len(CLASSES) for client in range(CLIENTS)]
            (made / "labels.json").write_text(json.dumps({"classes": CLASSES, "main": main}))
    return folder


def rolled(values: list[float], over: int) -> list[float]:
    """The mean of the last so many, the first of fewer."""
    return [sum(values[max(0, end - over) : end]) / min(end, over) for end in range(1, len(values) + 1)]


def reached(method: str, seed: int, target: float, over: int) -> tuple[int, int] | None:
    """The first round whose mean is there, and the bytes until then."""
    sent = list(accumulate(bytes_of(method, seed)))
    for number, value in enumerate(rolled(values_of(method, seed), over), 1):
        if value >= target:
            return number, sent[number - 1]
    return None
