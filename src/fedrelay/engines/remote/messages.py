"""What server and clients say to one another about a visit: a request, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fedrelay.engines.remote.trees import Malformed, decode, encode
from fedrelay.types import Baton, Tree, Vector

SAME = "same"
"""In place of a model (or of what the server shares) that the other side has already."""


@dataclass(frozen=True)
class Request:
    """A visit that a client is to make. It holds no code: `work` is the name of a work that both sides know."""

    ticket: str
    work: str
    round: int
    hop: int
    weight: float
    params: Vector | str | None
    """The model; `SAME`: the last one of this connection, whoever sent it; None: the work does not read it."""
    shared: Tree | str
    memory: str | None
    """By which name the client has kept what it begins with; None: it begins with nothing."""
    becomes: str
    """By which name it is to keep what it has after the visit."""
    keep: tuple[str, ...] = ()
    """All that it may still be asked for; everything else can go."""

    def encoded(self) -> bytearray:
        return encode(vars(self) | {"is": "visit"})

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Request:
        made: Request = _made(cls, tree)
        return made


@dataclass(frozen=True)
class Done:
    """What came of a visit."""

    ticket: str
    weight: float
    params: Vector | str
    """The model; `SAME`: the one that was received."""
    examples: int
    metrics: Mapping[str, float]
    uplink: Tree
    changed: bool
    """Whether the client has kept something new."""
    seconds: float
    """How long the work took."""

    def encoded(self) -> bytearray:
        return encode(vars(self) | {"is": "done"})


@dataclass(frozen=True)
class Failed:
    """Why nothing came of a visit. `forgotten`: the client does not have what it should begin with."""

    ticket: str
    reason: str
    forgotten: bool = field(default=False)

    def encoded(self) -> bytearray:
        return encode(vars(self) | {"is": "failed"})


@dataclass(frozen=True)
class Hop:
    """What a visit took: from the request to the answer, of that at work; bytes there and back; and how long its client
    could not be asked before."""

    round: int
    chain: int
    hop: int
    client: int
    work: str
    seconds: float
    working: float
    sent: int
    received: int
    waiting: float = 0.0


@dataclass
class Totals:
    """What all visits since the server has started took together, and how many were lost."""

    count: int = 0
    lost: int = 0
    seconds: float = 0.0
    working: float = 0.0
    sent: int = 0
    received: int = 0

    def add(self, hop: Hop) -> None:
        self.count += 1
        self.seconds += hop.seconds
        self.working += hop.working
        self.sent += hop.sent
        self.received += hop.received


@dataclass
class Held:
    """What is in a client's process since the last message: a model, and what the server shares."""

    params: Vector | None = None
    shared: Tree | None = None


KINDS: dict[str, type[Done] | type[Failed]] = {"done": Done, "failed": Failed}

MOST = 10**15
"""No number of examples, rounds or seconds is larger."""

FIGURES = 1000
"""No visit tells more metrics."""

CHECKS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("ticket", "work", "becomes", "reason"), (str,)),
    **dict.fromkeys(("round", "hop", "examples"), (int,)),
    **dict.fromkeys(("weight", "seconds"), (int, float)),
    **dict.fromkeys(("metrics", "uplink"), (dict,)),
    **dict.fromkeys(("changed", "forgotten"), (bool,)),
    "params": (torch.Tensor, str, type(None)),
    "shared": (dict, str),
    "memory": (str, type(None)),
    "keep": (tuple,),
}


def answer_of(message: bytes | bytearray) -> Done | Failed:
    """What a client says; whatever is no answer is refused."""
    tree = decode(message)
    kind = tree.get("is") if isinstance(tree, dict) else None
    if kind not in KINDS:
        raise Malformed(f"it is a {kind!r:.40}, and no answer")
    found: Done | Failed = _made(KINDS[kind], tree)
    if isinstance(found, Done):
        named = all(isinstance(key, str) for key in (*found.metrics, *found.uplink))
        if not named or not all(isinstance(value, int | float) for value in found.metrics.values()):
            raise Malformed("its metrics are no numbers by name")
        if len(found.metrics) > FIGURES or any(abs(value) > MOST for value in found.metrics.values()):
            raise Malformed(f"its metrics are more than {FIGURES}, or larger than {MOST:.0e}")
        if found.params is None or found.examples < 0:
            raise Malformed("it has no model, or fewer examples than none")
    return found


def _made(kind: Any, tree: Mapping[str, Any]) -> Any:
    """A record of the fields in a tree, each of its type."""
    fields = {name: value for name, value in tree.items() if name != "is"}
    for name, value in fields.items():
        if name not in CHECKS or not isinstance(value, CHECKS[name]):
            raise Malformed(f"{name!r:.40} is a {type(value).__name__}")
        if isinstance(value, int | float) and not 0 <= value <= MOST:
            raise Malformed(f"{name!r:.40} is {value!s:.40}, and not from 0 to {MOST:.0e}")
    try:
        return kind(**fields)
    except TypeError as error:
        raise Malformed(str(error)) from None


def baton_of(params: Vector, weight: float) -> Baton:
    """A baton of what was sent, which must be a model's vector."""
    if params.dtype != torch.float32 or params.dim() != 1:
        raise Malformed(f"its model is a {params.dtype} tensor of {params.dim()} dimensions")
    return Baton(params, float(weight))
