"""Whether a run fits on its device: reckoned before anybody trains, for a GPU that is full ends a run in its middle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedrelay.data.examples import Store
from fedrelay.data.federation import Federation
from fedrelay.data.nests import mapped
from fedrelay.errors import BadInput
from fedrelay.system.devices import in_words
from fedrelay.tasks import Task
from fedrelay.types import Work

FLOAT = 4
MEGABYTE = 1 << 20
BESIDE = 4
"""Vectors of a model's size that a training has besides the model: gradient, two moments, and one for what terms do."""
AT_SERVER = 4
"""Vectors that the server has besides the models of a round: the merged one, and what its optimiser keeps."""


@dataclass(frozen=True)
class Part:
    """Something that takes room on a device, and what would make it fit into so many bytes: empty if nothing would."""

    what: str
    bytes: int
    remedy: Callable[[int], str] = lambda left: ""


@dataclass(frozen=True)
class Wanted:
    """What decides how much room a run takes."""

    federation: Federation
    task: Task
    work: Work
    chains: int
    rows: int = 1
    """How many models are trained at once."""
    memory_limit: float | None = None
    examples: int = 0
    """Bytes of examples that are yet to be laid on the device."""


def check(wanted: Wanted, device: torch.device, there: int | None) -> None:
    """Refuse a run that does not fit into so many bytes of a device: with how much it needs, and what would fit."""
    parts = parts_of(wanted)
    total = sum(part.bytes for part in parts)
    if there is None or total <= there:
        return
    ways = [part.remedy(there - (total - part.bytes)) for part in sorted(parts, key=lambda part: -part.bytes)]
    ways = [*(way for way in ways if way), 'device = "cpu"']
    listed = ", ".join(f"{part.what} {in_words(part.bytes)}" for part in parts if part.bytes)
    raise BadInput(
        f"this run needs about {in_words(total)} on {device}, where {in_words(there)} are free ({listed}); "
        f"it would fit with {', or with '.join(ways)}"
    )


def parts_of(wanted: Wanted) -> list[Part]:
    """What a run takes, part by part."""
    task, work = wanted.task, wanted.work
    model = task.layout.size * FLOAT
    batch = work.at_once(max(wanted.federation.sizes))
    each = activations(task, wanted.federation.source.train, batch)
    training = wanted.rows * ((1 + BESIDE) * model + each)
    kept = len(work.keeps) * len(wanted.federation) * model
    limit = kept if wanted.memory_limit is None else int(wanted.memory_limit * MEGABYTE)

    def fewer(left: int) -> str:
        rows = left // ((1 + BESIDE) * model + each)
        if 2 <= rows < wanted.rows:
            return f"rows = {rows}"
        room = left - (1 + BESIDE) * model
        size = room * batch // max(each, 1)
        return f"[local] batch = {size}" if wanted.rows == 1 and 1 <= size < batch else ""

    def filed(left: int) -> str:
        limit = left * 10 // MEGABYTE / 10  # in megabytes, rounded down
        return f"memory_limit = {limit:g} (megabytes; what is beyond is kept in a file)" if limit > 0 else ""

    def shorter(left: int) -> str:
        chains = (left // model - AT_SERVER) // 2
        return f"no more than {chains} of {wanted.chains} chains in a round" if 1 <= chains < wanted.chains else ""

    return [
        Part("examples", wanted.examples),
        Part("models of a round", (2 * wanted.chains + AT_SERVER) * model, shorter),
        Part("what clients keep", min(kept, limit), filed),
        Part("training", training, fewer),
    ]


def activations(task: Task, examples: Store, batch: int) -> int:
    """About how many bytes a training step on a batch keeps for its way back: the network is run on torch's device
    `meta`, which has shapes and no numbers. 0 for a network that cannot be run there."""
    kept = 0

    def note(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    x = mapped(examples.take(slice(0, 1))[0], lambda part: part.to("meta").expand(batch, *part.shape[1:]))
    try:
        with torch.device("meta"):
            network = task.network()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            network(x)
    except Exception:  # a network of the user's own may look at numbers; the run itself will show
        return 0
    weights = task.layout.trainable * FLOAT  # which are among what is kept
    return 2 * max(kept - weights, 0)
