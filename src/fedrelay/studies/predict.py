"""Predictions of the model of a finished run, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedrelay.data.examples import Store
from fedrelay.runs.output import Trained
from fedrelay.studies.inputs import UNKNOWN, Asked, asked
from fedrelay.studies.loading import load_trained
from fedrelay.tasks import EVALUATION_BATCH

MOST_CLASSES = 100
"""Of more classes than this, only the chance of the predicted one is told."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Predictions:
    """One row for every input, and how many were right of those whose class is known."""

    rows: list[Row]
    right: int | None = None
    judged: int = 0

    @property
    def accuracy(self) -> float | None:
        return None if self.right is None else self.right / self.judged


@torch.no_grad()
def predict(folder: Path | str, data: str, *, client: str | None = None, data_dir: Path | None = None) -> Predictions:
    """What the model in a run's folder says of a table, images, arrays or the test part of a data set.

    `client` is one whose own model is asked, where a method gives clients models of their own.
    """
    trained = load_trained(folder)
    network = trained.network(client=client)
    wanted = asked(trained, str(data), data_dir)
    output = torch.cat(list(outputs(network, wanted.examples)))
    if trained.yes_or_no:
        output = output.reshape(len(output), 1)
        output = torch.cat((torch.zeros_like(output), output), dim=1)  # the softmax of these is the sigmoid
    elif not trained.tells_classes:
        return Predictions(numbers(wanted, output))
    if output.ndim > 2:
        return Predictions(tokens(wanted, output))
    rows = classes(trained, wanted, output)
    if not wanted.labelled:
        return Predictions(rows)
    targets = wanted.examples.y
    return Predictions(rows, int((output.argmax(-1) == targets).sum()), int((targets != UNKNOWN).sum()))


def outputs(network: nn.Module, examples: Store) -> Iterator[torch.Tensor]:
    """What the network returns, batch by batch."""
    for x, _ in examples.batches(EVALUATION_BATCH):
        yield network(x)


def classes(trained: Trained, wanted: Asked, output: torch.Tensor) -> list[Row]:
    """The class with the highest chance, and the chances of all."""
    chances = output.double().softmax(-1)
    names, best = trained.class_names, chances.max(-1)
    few = len(names) <= MOST_CLASSES
    rows = []
    for place, name in enumerate(wanted.names):
        row: Row = {wanted.title: name}
        if wanted.labelled:
            code = int(wanted.examples.y[place])
            row["label"] = "" if code == UNKNOWN else names[code]
        row |= {"prediction": names[int(best.indices[place])], "confidence": round(float(best.values[place]), 6)}
        if few:
            row |= {f"p({each})": round(float(p), 6) for each, p in zip(names, chances[place], strict=True)}
        rows.append(row)
    return rows


def tokens(wanted: Asked, output: torch.Tensor) -> list[Row]:
    """The likeliest token at every place."""
    best = output.argmax(-1).tolist()
    return [
        {wanted.title: name, "prediction": " ".join(map(str, row))}
        for name, row in zip(wanted.names, best, strict=True)
    ]


def numbers(wanted: Asked, output: torch.Tensor) -> list[Row]:
    """The outputs as they are."""
    flat = output.reshape(len(output), -1)
    titles = ["output"] if flat.shape[1] == 1 else [f"output {place}" for place in range(flat.shape[1])]
    return [
        {wanted.title: name, **dict(zip(titles, row, strict=True))}
        for name, row in zip(wanted.names, flat.tolist(), strict=True)
    ]
