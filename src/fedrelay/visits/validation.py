"""The part of its examples that a client does not train on, and the epoch that is best on it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch

from fedrelay import seeds
from fedrelay.data.examples import Store
from fedrelay.data.federation import ClientData
from fedrelay.errors import say_once
from fedrelay.tasks import OneModel, evaluate
from fedrelay.types import Vector, Visit


class Epoch(NamedTuple):
    """The end of a pass over the client's examples: its number from 1, and what has been done since the beginning."""

    number: int
    steps: int
    examples: int
    losses: float
    """The sum, over these examples."""
    momentum: torch.Tensor | None = None
    """That of the last step, where it goes on at the client's next visit."""


class Best(NamedTuple):
    """The best epoch so far, its model, and its figure on the validation part (higher is better)."""

    epoch: Epoch
    params: Vector
    figure: float


def better(best: Best | None, epoch: Epoch, held: Store, visit: Visit) -> Best:
    """The best epoch after this one; of equals the first."""
    workspace = visit.workspaces.main
    headline, params = visit.task.headline, workspace.model()
    found = evaluate(OneModel(params), held, visit.workspaces)[headline.name]
    workspace.mode(training=True)
    figure = headline.merit(found)
    return Best(epoch, params, figure) if best is None or figure > best.figure else best


def tell_poor_choice(best: Best | None, visit: Visit) -> None:
    """Say so where a client cannot tell its epochs apart: it has nothing to hold out, or got all of it wrong."""
    who, headline = f"client {visit.client.id}", visit.task.headline
    if best is None:
        say_once(" has too few examples for a validation part, so it keeps its last epoch", who=who)
    elif best.figure == -math.inf or (headline.share and headline.higher_is_better and best.figure == 0):
        worst = "0" if best.figure == 0 else "not a number"
        text = f": the {headline.name} on its validation part is {worst} after every epoch, so it keeps the first"
        say_once(text, who=who)


def split(visit: Visit, share: float) -> tuple[ClientData, torch.Tensor]:
    """The client without the rows of its validation part, and those rows: the same at every visit. At least one example
    is held out and one is left, where there are two."""
    client = visit.client
    order = torch.from_numpy(seeds.rng(visit.seed, "validation", client.id).permutation(client.size))
    held = number_held(client.size, share)
    return replace(client, rows=client.rows[order[held:].sort().values]), client.rows[order[:held]]


def number_held(size: int, share: float) -> int:
    """How many of so many examples are held out."""
    return min(max(round(share * size), 1), size - 1) if share else 0


def held_out(visit: Visit, share: float) -> Store | None:
    """The examples that are not trained on; None if there are none."""
    if not share:
        return None
    rows = split(visit, share)[1]
    return visit.client.examples.picked(rows) if len(rows) else None
