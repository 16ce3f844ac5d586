"""In which order one chain goes through its clients, where that is not left to chance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from fedrelay.errors import BadInput
from fedrelay.types import Survey

Order: TypeAlias = Literal["random", "given", "by_size", "by_domain"] | tuple[int, ...] | tuple[str, ...]
"""Anew at random, as clients are numbered, large ones first, every domain in turn, or clients (or domains) one by one,
by number or name."""

UNKNOWN = re.compile(r"client \d+")
NUMBERED = re.compile(r" \(\d+\)$")


def fixed_order(order: Order, sizes: Sequence[int], survey: Survey) -> tuple[int, ...]:
    """All clients in this order, which is not at random."""
    if order == "given":
        return tuple(range(len(sizes)))
    if order == "by_size":
        return tuple(sorted(range(len(sizes)), key=lambda client: -sizes[client]))
    if order == "by_domain":
        return every_domain_in_turn(domains_of(survey.names))
    if isinstance(order, str):
        raise BadInput(f"order must be random, given, by_size, by_domain or a list of clients, not {order!r}")
    return one_by_one(order, survey.names, len(sizes))


def domains_of(names: Sequence[str]) -> list[str]:
    """The domain of every client: whose examples it has. Of several clients of one, names have numbers."""
    unknown = [name for name in names if UNKNOWN.fullmatch(name)]
    if unknown or not names:
        who = f"of {', '.join(unknown[:5])} it" if unknown else "it"
        raise BadInput(
            f"order by_domain needs clients whose examples come from one named owner each: {who} is not known"
        )
    return [NUMBERED.sub("", name) for name in names]


def every_domain_in_turn(domains: Sequence[str]) -> tuple[int, ...]:
    """The first client of every domain, then the second of each (FedELMY 2024, Table 6)."""
    seen: dict[str, int] = {}
    turns = []
    for client, domain in enumerate(domains):
        seen[domain] = seen.get(domain, 0) + 1
        turns.append((seen[domain], list(seen).index(domain), client))
    return tuple(client for _, _, client in sorted(turns))


def one_by_one(wanted: Sequence[int | str], names: Sequence[str], clients: int) -> tuple[int, ...]:
    """Clients as they are listed; the name of a domain stands for all its clients."""
    found: list[int] = []
    for one in wanted:
        mine = [one] if isinstance(one, int) and 0 <= one < clients else named(str(one), names)
        if not mine:
            raise BadInput(f"order names {one!r}, and there is no such client (there are {clients}: {some(names)})")
        found += mine
    missing = sorted(set(range(clients)) - set(found))
    if missing or len(found) > clients:
        what = f"client {missing[0]} is missing" if missing else "some are there twice"
        raise BadInput(f"order must list every one of the {clients} clients once: {what}")
    return tuple(found)


def named(name: str, names: Sequence[str]) -> list[int]:
    return [client for client, full in enumerate(names) if name in (full, NUMBERED.sub("", full))]


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "") or "without names"
