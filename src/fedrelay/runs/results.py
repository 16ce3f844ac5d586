"""What the result of a run is worth: to every client, and class by class. Written beside the summary.

clients.json and clients.csv hold the figures of every client that has a test part; quality.json holds the confusion
matrix and the calibration on the test set, where classes are told apart.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrelay.data.examples import Store
from fedrelay.data.federation import Federation
from fedrelay.data.holdout import own_tests
from fedrelay.errors import BadInput
from fedrelay.runs.folder import CLIENTS, CLIENTS_TABLE, QUALITY, keep
from fedrelay.runs.json_files import Check, Damaged, dumps, number, numbers, text
from fedrelay.runs.quality import Bin, Calibration, Spread, calibration, confusion
from fedrelay.runs.rounds import kept
from fedrelay.runs.testing import by_client, own_test_parts
from fedrelay.system.devices import deterministic
from fedrelay.tasks import EVALUATION_BATCH, CrossEntropy, Predictor, Workspaces

MOST_CLASSES = 200
"""A larger confusion matrix is not written."""


@dataclass(frozen=True)
class ClientResult:
    """What the result of a run is worth to one client, on its own test part."""

    client: int
    name: str
    examples: int
    """Those it trains on."""
    tested: int
    metrics: Mapping[str, float | None]
    """Not finite is None."""


@dataclass(frozen=True)
class Clients:
    """Every client that has a test part, in order; `headline` is the figure to judge by."""

    headline: str
    higher_is_better: bool
    clients: tuple[ClientResult, ...]

    @property
    def spread(self) -> Spread | None:
        """Of the headline, over the clients that have it."""
        values = [client.metrics.get(self.headline) for client in self.clients]
        found = [value for value in values if value is not None]
        return Spread.of(found, higher_is_better=self.higher_is_better)

    @property
    def worst(self) -> list[ClientResult]:
        """All that have a figure, the worst first."""
        known = [client for client in self.clients if client.metrics.get(self.headline) is not None]
        sign = 1 if self.higher_is_better else -1
        return sorted(known, key=lambda client: sign * (client.metrics[self.headline] or 0.0))


@dataclass(frozen=True)
class Quality:
    """What classes are taken for which on the test set, and how sure of it the model is."""

    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    """Rows are what it is, columns what it was taken for; empty where there are too many classes to write it."""
    calibration: Calibration | None
    """None if the model gave something that is no number."""


# --- judging


def judge_clients(predictor: Predictor, federation: Federation | None, workspaces: Workspaces) -> Clients | None:
    """The figures of every client that has a test part, each with the model that it would use; None if none has."""
    parts = None if federation is None else own_tests(federation)
    if parts is None:
        return None
    found = []
    for part, measured in by_client(predictor, own_test_parts(parts), workspaces):
        finite = {key: value if math.isfinite(value) else None for key, value in measured.items()}
        found.append(ClientResult(part.id, parts.names[part.id], parts.sizes[part.id], part.size, finite))
    headline = workspaces.task.headline
    return Clients(headline.name, headline.higher_is_better, tuple(found)) if found else None


@torch.no_grad()
def judge_classes(
    predictor: Predictor, test: Store | None, workspaces: Workspaces, class_names: tuple[str, ...] = ()
) -> Quality | None:
    """Confusion and calibration on these examples; None where examples do not have one class each."""
    classes = workspaces.task.classes
    one_class = isinstance(workspaces.task.loss, CrossEntropy) and classes > 1
    if test is None or not len(test) or not test.classified or not one_class:
        return None
    outputs = predictor.outputs(workspaces)
    some = test.on(workspaces.device).batches(EVALUATION_BATCH)
    with deterministic(workspaces.device):
        answers = [outputs(x).cpu().double().softmax(-1).max(-1) for x, _ in some]
    confidence = torch.cat([each.values for each in answers]).numpy()
    predicted, target = torch.cat([each.indices for each in answers]).numpy(), test.labels
    few = classes <= MOST_CLASSES
    return Quality(
        named(class_names, classes),
        tuple(tuple(row) for row in confusion(target, predicted, classes).tolist()) if few else (),
        calibration(confidence, predicted == target) if np.isfinite(confidence).all() else None,
    )


def named(class_names: tuple[str, ...], classes: int) -> tuple[str, ...]:
    """Classes by name; those without one by number."""
    return class_names or tuple(map(str, range(classes)))


def write_results(
    folder: Path,
    predictor: Predictor,
    workspaces: Workspaces,
    *,
    test: Store | None = None,
    federation: Federation | None = None,
    each_client: bool = True,
    told: Clients | None = None,
) -> tuple[Clients | None, Quality | None]:
    """Judge what a run has made, and write what came of it: for clients that have test parts, or have `told` it
    themselves, and for classes."""
    clients = told or (judge_clients(predictor, federation, workspaces) if each_client else None)
    quality = judge_classes(predictor, test, workspaces, () if federation is None else federation.source.class_names)
    if clients is not None:
        write_clients(folder, clients)
    if quality is not None:
        write_quality(folder, quality)
    return clients, quality


def spread_of(clients: Clients | None) -> dict[str, float | None]:
    """As the summary says it."""
    spread = None if clients is None else clients.spread
    return {} if spread is None else asdict(spread)


def error_of(quality: Quality | None) -> float | None:
    """As the summary says it."""
    return None if quality is None or quality.calibration is None else quality.calibration.error


# --- the files


def write_clients(folder: Path, clients: Clients) -> None:
    spread = clients.spread
    content = asdict(clients) | {"spread": None if spread is None else asdict(spread)}
    keep(folder / CLIENTS, dumps(content, indent=2) + "\n")
    keep(folder / CLIENTS_TABLE, table(rows_of(clients)))


def rows_of(clients: Clients) -> list[dict[str, Any]]:
    """One flat row for every client."""
    return [
        {"client": each.client, "name": each.name, "examples": each.examples, "tested": each.tested, **each.metrics}
        for each in clients.clients
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as CSV; what a row does not have is empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    written = io.StringIO()
    writer = csv.DictWriter(written, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def write_quality(folder: Path, quality: Quality) -> None:
    keep(folder / QUALITY, dumps(asdict(quality), indent=None) + "\n")


def read_clients(folder: Path) -> Clients | None:
    """None if the run has none."""
    found = read(folder / CLIENTS)
    if found is None:
        return None
    try:
        for client in found["clients"]:
            for name, check in CLIENT_CHECKS.items():
                check(client[name], name)
        each = tuple(ClientResult(**kept(ClientResult, client)) for client in found["clients"])
        return Clients(str(found["headline"]), bool(found["higher_is_better"]), each)
    except BROKEN as error:
        raise damaged(folder / CLIENTS, error) from None


def read_quality(folder: Path) -> Quality | None:
    """None if the run has none."""
    found = read(folder / QUALITY)
    if found is None:
        return None
    try:
        sure = found["calibration"]
        for each in () if sure is None else sure["bins"]:
            numbers(each, "bins")
        bins = () if sure is None else tuple(Bin(**kept(Bin, each)) for each in sure["bins"])
        return Quality(
            tuple(map(str, found["classes"])),
            tuple(tuple(map(int, row)) for row in found["confusion"]),
            None if sure is None else Calibration(float(sure["error"]), bins),
        )
    except BROKEN as error:
        raise damaged(folder / QUALITY, error) from None


def read(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from None


BROKEN = (KeyError, TypeError, ValueError, AttributeError, OverflowError, Damaged)
"""How what is not as it was written shows itself."""
CLIENT_CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(("client", "examples", "tested"), number),
    "name": text,
    "metrics": numbers,
}


def damaged(path: Path, error: Exception) -> BadInput:
    why = f"no {error}" if isinstance(error, KeyError) else str(error)[:200]
    return BadInput(f"{path} is damaged ({why}): delete it and run with --resume to write it anew")
