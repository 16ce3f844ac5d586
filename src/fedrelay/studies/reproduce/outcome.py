"""All that an item has come to at a scale, as results.json keeps it: pages are made from that, without the runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from fedrelay import __version__
from fedrelay.errors import BadInput
from fedrelay.studies.reproduce import scales
from fedrelay.studies.reproduce.beside import WITH_NUMBERS, Cell, Judged, Line, Part, judged, parts_of
from fedrelay.studies.reproduce.finished import Finished
from fedrelay.studies.reproduce.item import Item, Place


@dataclass(frozen=True)
class Head:
    """A column by its name, with the unit and the digits that its numbers have."""

    name: str
    unit: str = ""
    digits: int | None = None

    @property
    def title(self) -> str:
        """What stands above the column: its unit too, unless every number has it."""
        return self.name if self.unit in ("", *WITH_NUMBERS) else f"{self.name} ({self.unit})"


@dataclass(frozen=True)
class Outcome:
    """An item at a scale: what it is, its panels beside the paper's, and its claims."""

    item: str
    paper: str
    title: str
    where: str
    scale: str
    why: str
    command: str
    columns: tuple[Head, ...]
    parts: tuple[Part, ...]
    claims: tuple[Judged, ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Panels that were not run, and why."""
    failed: tuple[str, ...] = ()
    version: str = field(default=__version__)


def outcome_of(
    item: Item,
    scale: str,
    found: Mapping[str, Finished],
    *,
    left_out: Sequence[str] = (),
    failed: Sequence[str] = (),
) -> Outcome:
    """What came of an item, from what is there of its panels."""
    parts = parts_of(item, scale, found)
    at = scales.scale_of(item, scale)
    return Outcome(
        item=item.name,
        paper=item.paper.short or item.paper.title,
        title=item.title,
        where=item.where,
        scale=scale,
        why=at.why,
        command=f"fedrelay reproduce {quote(item.asked or item.name)} --scale {scale}",
        columns=tuple(Head(column.name, column.unit, column.digits) for column in item.columns),
        parts=tuple(parts),
        claims=tuple(judged(item, scale, parts)),
        notes=item.notes,
        left_out=tuple(left_out),
        failed=tuple(failed),
    )


def dumped(outcome: Outcome) -> bytes:
    return (json.dumps(asdict(outcome), indent=1, ensure_ascii=False) + "\n").encode()


def read(path: Path) -> Outcome:
    """What results.json says; one that is damaged, or another program's, is refused."""
    try:
        return loaded(json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path} is not the results.json of `fedrelay reproduce` ({error}): run it again") from None


def loaded(found: Mapping[str, Any]) -> Outcome:
    plain = {key: found[key] for key in ("item", "paper", "title", "where", "scale", "why", "command", "version")}
    return Outcome(
        **plain,
        notes=tuple(found["notes"]),
        left_out=tuple(found["left_out"]),
        failed=tuple(found["failed"]),
        columns=tuple(Head(**head) for head in found["columns"]),
        parts=tuple(part_of(part) for part in found["parts"]),
        claims=tuple(claim_of(claim) for claim in found["claims"]),
    )


def part_of(found: Mapping[str, Any]) -> Part:
    lines = [
        Line(
            line["name"],
            {column: Cell(**cell) for column, cell in line["cells"].items()},
            tuple(line["rounds"]),
            line["planned"],
            line.get("seeds"),
        )
        for line in found["lines"]
    ]
    return Part(found["name"], tuple(lines))


def claim_of(found: Mapping[str, Any]) -> Judged:
    places = tuple(Place(**place) for place in found["places"])
    return Judged(**{**found, "places": places, "ours": tuple(found["ours"]), "paper": tuple(found["paper"])})
