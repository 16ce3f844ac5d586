"""Whether what was saved is of the model and the clients that a run is to go on with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fedrelay.errors import BadInput
from fedrelay.types import Engine, State, Tree, Work


def check_fits(path: Path, state: State, memories: Mapping[int, Tree], engine: Engine, update: Work) -> None:
    """Refuse batons and memories of another model, and clients that there are not."""
    layout, clients = engine.task.layout, range(len(engine.sizes))
    batons = [*state.batons, *(baton for one in state.waiting for baton in (one.chain.start, one.baton))]
    saved = next((len(baton.params) for baton in batons if len(baton.params) != layout.size), layout.size)
    if saved != layout.size:
        raise BadInput(f"{path}: the saved model has {saved} numbers, the configured one has {layout.size}")
    named = [*memories, *state.participants, *(client for one in state.waiting for client in one.chain.clients)]
    strange = next((client for client in named if client not in clients), None)
    if strange is not None:
        raise BadInput(f"{path}: the checkpoint knows client {strange}, but there are {len(clients)} (from 0 on)")
    home = sum(place.stop - place.start for place in update.at_home(engine.task))
    right = (layout.trainable, layout.size, home)
    for client, memory in memories.items():
        for name in update.keeps:
            if name in memory and length_of(memory[name]) not in right:
                raise BadInput(
                    f"{path}: client {client} keeps {name!r} with {length_of(memory[name])} numbers, the configured "
                    f"model trains {layout.trainable}: that memory is another model's"
                )


def length_of(kept: Any) -> int:
    """Of a vector; nothing else has numbers of a model."""
    return len(kept) if isinstance(kept, torch.Tensor) and kept.dim() == 1 and kept.dtype == torch.float32 else 0
