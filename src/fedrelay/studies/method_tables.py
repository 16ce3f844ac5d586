"""The tables of docs/choose-a-method.md, read off the code.

`python -m fedrelay.studies.method_tables docs/choose-a-method.md` renews them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedrelay import config
from fedrelay.algorithms import ALGORITHMS, method
from fedrelay.config import catalogue
from fedrelay.data import Federation, Iid, digits
from fedrelay.errors import BadInput
from fedrelay.models import Mlp, Model, Own
from fedrelay.runs.loop import adapted, train
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.marks import filled
from fedrelay.tasks import PRIVATE, Task
from fedrelay.types import Algorithm


@dataclass(frozen=True)
class Facts:
    """What a short run of a method shows."""

    messages: float
    """Per visit to a client, in FedAvg's."""
    across: bool
    """Whether clients send to one another."""


def methods() -> str:
    """The table of all methods."""
    measured = {name: measure(name) for name in ALGORITHMS}
    plain = measured["fedavg"].messages
    rows = []
    for name, row in ALGORITHMS.items():
        facts, algorithm = measured[name], method(row.recipe())
        kept = [KEPT.get(vector, f"{vector} (a model's size)") for vector in algorithm.update.keeps]
        traffic = f"{facts.messages / plain:.2g}" if facts.messages else "none"
        texts = (catalogue.about(row.recipe), said(row.recipe, "When "), needs(algorithm, facts), knobs(row.recipe))
        idea, use, wants, settings = texts
        values = said(row.recipe, "Papers: ").removeprefix("Papers: ")
        rows.append([f"`{name}`", idea, use, ", ".join(kept) or "–", traffic, wants, settings, values])
    columns = ["method", "idea", "when to use it", "state on clients", "traffic", "needs", "knobs", "papers' values"]
    return markdown_table(columns, rows)


KEPT = {PRIVATE: "its own part of the model"}
"""What is not as large as a model."""


def measure(name: str) -> Facts:
    """Two rounds on a few digits, groups of ten where there are groups."""
    row = ALGORITHMS[name]
    settings = {"max_clients": 10} if "max_clients" in inspect.signature(row.recipe).parameters else {}
    settings |= {key: row.settings[key] for key in ("steps", "batch") if key in row.settings}  # the server's own work
    tables: dict[str, Any] = {
        "data": {"name": "digits", "clients": 100},
        "model": {"name": row.model, "hidden": [2]},
        "local": {"steps": 1, "batch": 2},
        "algorithm": {"name": name, **settings},
        "engine": {"name": "inline"},
    }
    built = config.build(tables)
    messages = visits = across = 0
    for state in train(built.algorithm, built.engine, rounds=2):
        log = state.log
        assert log is not None
        messages += sum(log.messages.values()) - log.describing["messages"]
        across += log.messages["client_to_client"]
        visits += log.clients
    return Facts(messages / visits, across > 0)


def said(recipe: Callable[..., Any], beginning: str) -> str:
    """The paragraph of the docstring that begins so."""
    paragraphs = (" ".join(part.split()) for part in (inspect.getdoc(recipe) or "").split("\n\n"))
    return next((text for text in paragraphs if text.startswith(beginning)), "–")


def needs(algorithm: Algorithm, facts: Facts) -> str:
    """What must be there for it."""
    wanted = [
        (facts.across, "clients that reach one another"),
        (algorithm.relayed, "a server that passes models on"),
        (bool(algorithm.update.keeps), "clients that come back and keep state"),
        (not takes(algorithm, Own(Bare())) and takes(algorithm, Mlp()), "a model with body and head"),
        (not takes(algorithm, Mlp()), "a model with normalisation layers"),
        ("ClassHistogram" in repr(algorithm.plan), "class counts from clients"),
        (algorithm.pooled, "all data in one place"),
    ]
    return ", ".join(text for holds, text in wanted if holds) or "nothing"


class Bare(nn.Module):
    """A network whose features cannot be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(x.flatten(1))
        return logits


def takes(algorithm: Algorithm, model: Model) -> bool:
    """Whether the method takes such a model."""
    federation = Federation.split(digits(), Iid(), 2)
    try:
        adapted(algorithm, Task.of(model, federation))
    except BadInput:
        return False
    return True


def knobs(recipe: Callable[..., Any]) -> str:
    """Its own parameters, with their defaults."""
    found = catalogue.parameters(recipe)
    return (
        ", ".join(f"`{key}`" if value is None else f"`{key} = {short(value)}`" for key, value in found.items()) or "–"
    )


def short(value: Any) -> Any:
    """A default as one would write it."""
    if isinstance(value, Mapping):
        rest = {key: item for key, item in value.items() if key != "name"}
        return (
            f'"{value["name"]}"' if not rest else "{ " + ", ".join(f"{k} = {short(v)}" for k, v in value.items()) + " }"
        )
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else value


def choices(kind: str) -> str:
    """The table of everything of one kind."""
    rows = [[f"`{name}`", catalogue.about(target), knobs(target)] for name, target in catalogue.targets(kind).items()]
    return markdown_table([kind.removesuffix("s"), "what it does", "knobs"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "methods": methods,
    "merges": lambda: choices("merges"),
    "terms": lambda: choices("terms"),
    "optimisers": lambda: choices("optimisers"),
}


def renewed(text: str) -> str:
    """The document with every table filled anew."""
    return filled(text, {name: make() for name, make in TABLES.items()})


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(renewed(document.read_text(encoding="utf-8")), encoding="utf-8")
