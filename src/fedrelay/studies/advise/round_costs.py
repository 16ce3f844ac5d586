"""What a round costs on paper, whatever the method: messages, and seconds if links or the server's line decide.

One formula has all methods, since all are chains: FedAvg's are of one client, FedCyclic's is of all that take part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from fedrelay.plans.growth import Growth


@dataclass(frozen=True)
class Shape:
    """How a round of a method looks: chains of `length` clients; `extra` vectors of the model's size that every visit
    sends besides (SCAFFOLD: two); `relayed`: the server passes on what clients send to one another; `serverless`: one
    chain without a server, whose first client has the model and whose last one keeps it; `work`: models that a visit
    trains."""

    length: float = 1.0
    extra: int = 0
    relayed: bool = False
    serverless: bool = False
    work: int = 1


@dataclass(frozen=True)
class Line:
    """What time is made of: seconds of a visit (training), of a message over a client's link, and of a message over the
    server's line (0: it is never what one waits for)."""

    visit: float
    link: float
    server: float = 0.0


def messages(shape: Shape, visits: float) -> tuple[float, float]:
    """Of a round with so many visits: those to and from the server, and those between clients."""
    chains, more = visits / shape.length, shape.extra * visits
    if shape.serverless:
        return 0.0, visits - chains
    if shape.relayed:
        return 2 * visits + more, 0.0
    return 2 * chains + more, visits - chains


def seconds(shape: Shape, visits: float, line: Line) -> float:
    """Of a round: as long as one chain, or as long as all that the server must send and receive.

    Where the server passes everything on, a chain waits for it at every hop, so training comes on top.
    """
    if shape.serverless:
        return shape.length * shape.work * line.visit + (shape.length - 1) * line.link
    through, _ = messages(shape, visits)
    hops = shape.length * (line.visit + (1 + shape.extra) * line.link)
    hops += shape.length * line.link if shape.relayed else line.link  # what goes up at every hop, or once at the end
    served = through * line.server + (shape.length * line.visit if shape.relayed else 0.0)
    return max(hops, served)


def break_even(shape: Shape, visits: float, line: Line) -> float:
    """How many times fewer rounds than FedAvg chains of this shape need, to be as fast on the clock."""
    return seconds(shape, visits, line) / seconds(Shape(), visits, line)


def hops(growth: Growth, clients: int, rounds: int) -> int:
    """Visits one after another of so many rounds in which the number of groups grows: the longest chain of each."""
    return sum(math.ceil(clients / min(growth(round), clients)) for round in range(1, rounds + 1))


def mean_length(growth: Growth, clients: int, rounds: int) -> float:
    """The mean length of a chain over so many rounds."""
    return fmean(clients / min(growth(round), clients) for round in range(1, rounds + 1))
