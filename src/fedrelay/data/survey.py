"""Describing clients before there is a model: what is found out here is needed to make one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.augment import levelled
from fedrelay.data.examples import Examples, Store
from fedrelay.data.federation import ClientData, Rows, Sent
from fedrelay.errors import BadInput
from fedrelay.types import Baton, Report, Result, Tree, Visit, Work

if TYPE_CHECKING:
    from fedrelay.tasks import Task, Workspaces

AT_ONCE = 256
"""So many pictures are looked at at once."""


def survey(work: Work, clients: Iterable[ClientData]) -> Iterator[Report]:
    """Run a Work that does not read the model once on every client, in this process."""
    for client in clients:
        # How many inputs a model has is not known yet: such a visit has neither a task nor a place to train.
        task, workspaces = cast("Task", None), cast("Workspaces", None)
        visit = Visit(client, task, {}, {}, round=0, hop=0, seed=0, workspaces=workspaces)
        yield work(Baton(torch.empty(0)), visit)[2]


def exchanged(told: Sequence[Tree], answer: Tree) -> Sent:
    """What it takes that every client tells something, and gets the same answer."""
    sizes = len(told) * size_of(answer), sum(map(size_of, told))
    return Sent((len(told), len(told)), sizes)


def size_of(tree: Tree) -> int:
    """The bytes that it takes to send plain data."""
    return len(json.dumps(tree, ensure_ascii=False).encode())


@dataclass(frozen=True)
class PixelRange(Work):
    """The least and the most value of a client's pictures, so that all are scaled alike."""

    @property
    def reads_model(self) -> bool:
        return False

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        examples, least, most = visit.client.examples, float("inf"), float("-inf")
        for rows in torch.split(visit.client.rows, AT_ONCE):
            x, _ = examples.take(rows)
            least, most = min(least, float(x.min())), max(most, float(x.max()))
        return baton, visit.memory, Report(visit.client.id, 0, uplink={"least": least, "most": most})


def scaled(
    where: str, x: NDArray[np.float32], owners: Rows, trained: Rows, levels: tuple[float, ...] | None
) -> tuple[NDArray[np.float32], tuple[float, float], Sent]:
    """Deep pictures with 0 … 1 for the range they have at all owners together (or for the levels given), that range,
    and what it took to find it out. Only what is trained on counts."""
    examples = Examples(torch.from_numpy(x), torch.zeros(len(x), dtype=torch.int64))
    least, most, sent = levels_of(where, examples, owners, trained, levels)
    return levelled(x, least, most), (least, most), sent


def levels_of(
    where: str, examples: Store, owners: Rows, trained: Rows, levels: tuple[float, ...] | None
) -> tuple[float, float, Sent]:
    """The range of deep pictures at all owners together, or the levels given; and what it took to find it out."""
    if levels is not None:
        if len(levels) != 2 or not levels[0] < levels[1]:
            raise BadInput(f"levels must be two numbers, the smaller first, such as [0, 4095], not {list(levels)}")
        least, most, sent = float(levels[0]), float(levels[1]), Sent()
    else:
        least, most, sent = pixel_range(examples, owners, trained)
        if least == most:
            raise BadInput(f"{where}: expected images with something on them, found {least:g} in every pixel")
    return least, most, sent


def pixel_range(examples: Store, owners: Rows, trained: Rows) -> tuple[float, float, Sent]:
    """The range of the pictures that are trained on, over all owners, each of which tells its own."""
    clients = [
        ClientData(owner, examples, torch.from_numpy(trained[owners[trained] == owner]))
        for owner in range(int(owners.max()) + 1)
    ]
    told = [report.uplink for report in survey(PixelRange(), clients)]
    least, most = min(each["least"] for each in told), max(each["most"] for each in told)
    return least, most, exchanged(told, {"least": least, "most": most})
