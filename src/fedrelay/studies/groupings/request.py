"""What a file asks the laboratory for: its [groups] section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrelay.config import schema
from fedrelay.config.choices import CHOICES
from fedrelay.errors import BadInput, within
from fedrelay.plans import DISTANCES, GROUPERS, Grouper, Grouping, Limits, limits_of
from fedrelay.plans.grouping.criteria import pairs
from fedrelay.studies.groupings.apart import Shown
from fedrelay.types import Trait
from fedrelay.visits.traits import TRAITS

KEYS = (
    "traits",
    "distances",
    "groupers",
    "min_examples",
    "max_clients",
    "groups",
    "repeats",
    "epochs",
    "clients",
    "client",
)
LIMITS = KEYS[3:6]
SHOWN = 75
"""Clients whose distances are drawn, as in FedSeq journal 2024, Fig. 9."""


@dataclass(frozen=True)
class Request:
    """Every grouper with every trait and every distance that go together, each `repeats` times; and, if `epochs` are
    given, how unlike the clients' models become when they train alone that long.

    The page also has the distances between some `clients` by every trait: the first so many (those of one class side by
    side), a list of their numbers, or a list of names of classes, for all clients that have most of those. `client` is
    the number of one of them, whose distances to the others have a picture of their own; the first of them, unless it
    is said."""

    traits: Mapping[str, Trait]
    distances: tuple[str, ...]
    groupers: Mapping[str, Grouper]
    limits: Limits
    repeats: int = 3
    epochs: tuple[int, ...] = ()
    clients: Shown = SHOWN
    client: int | None = None

    def combinations(self) -> list[tuple[str, str, str, Grouping]]:
        """Names of trait, grouper and distance, and the grouping they make; groupers that need no trait come last."""
        found = [
            (trait, grouper, distance, Grouping(self.traits[trait], DISTANCES[distance](), self.groupers[grouper]))
            for trait in self.traits
            for grouper in self.groupers
            for distance in self.distances
            if distance in self.groupers[grouper].needs and self.traits[trait].kind in DISTANCES[distance].takes
        ]
        alone = [(name, Grouping(grouper=grouper)) for name, grouper in self.groupers.items() if not grouper.needs]
        return [*found, *(("", name, "", grouping) for name, grouping in alone)]


def read(values: Mapping[str, Any], algorithm: Mapping[str, Any], *, exemplars: bool) -> Request:
    """From the [groups] section; limits that it does not give are those of the [algorithm] section."""
    where = "[groups]"
    schema.check_keys(values, KEYS, where)
    usual = ["histogram", "classifier", *(["confidence"] if exemplars else [])]
    traits = named(TRAITS, values.get("traits", usual), f"{where}.traits")
    groupers = named(GROUPERS, values.get("groupers", list(GROUPERS)), f"{where}.groupers")
    distances = items(values.get("distances", list(DISTANCES)), f"{where}.distances")
    for name in distances:
        schema.choose(DISTANCES, name, f"{where}.distances")
    source = values if any(key in values for key in LIMITS) else algorithm
    limits = [schema.convert(source.get(key, schema.NONE), int | None, f"{where}.{key}") for key in LIMITS]
    repeats = schema.convert(values.get("repeats", 3), int, f"{where}.repeats")
    within(f"{where}.repeats", repeats, least=1)
    epochs = schema.convert(values.get("epochs", []), tuple[int, ...], f"{where}.epochs")
    for number in epochs:
        within(f"every one of {where}.epochs", number, least=1)
    clients = shown(values.get("clients", SHOWN), f"{where}.clients")
    client = schema.convert(values.get("client", schema.NONE), int | None, f"{where}.client")
    limited = limits_of(*limits)
    request = Request(traits, tuple(distances), groupers, limited, repeats, epochs, clients, client)
    refuse_unused(request, values)
    return request


def named(table: schema.Table, value: Any, where: str) -> dict[str, Any]:
    """Every item of a list, by a name that tells its options: `classifier last2`."""
    found: dict[str, Any] = {}
    for item in items(value, where):
        built, _ = schema.build_named(table, item, where, CHOICES)
        label = label_of(item)
        if label in found:
            raise BadInput(f"{where}: {label} is there twice")
        found[label] = built
    return found


def label_of(item: Any) -> str:
    """The name of one item of a list, with the values of its options."""
    if isinstance(item, str):
        return item
    return " ".join([item["name"], *(worded(value) for key, value in item.items() if key != "name")])


def items(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise BadInput(f"{where}: expected a list of names (or tables with a name), not {value!r}")
    return value


def shown(value: Any, where: str) -> Shown:
    """How many clients are shown, or which, by number or by class."""
    if type(value) is int:
        within(where, value, least=2)
        return value
    if isinstance(value, list) and value and len({type(item) for item in value} & {int, str}) == 1:
        return tuple(value)
    raise BadInput(f"{where}: expected a number of clients, a list of their numbers or of classes, not {value!r:.100}")


def worded(value: Any) -> str:
    """An option's value in a name."""
    if isinstance(value, Mapping):
        return " ".join(worded(item) for item in value.values())
    return " ".join(map(worded, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def refuse_unused(request: Request, values: Mapping[str, Any]) -> None:
    """A trait or a distance that was asked for but has no partner is a mistake."""
    made = request.combinations()
    for key, place, wanted in (("traits", 0, request.traits), ("distances", 2, request.distances)):
        for name in wanted if key in values else ():
            if name not in {combination[place] for combination in made}:
                raise BadInput(
                    f"[groups].{key}: {name} has no partner among what else is asked for; pairs that work: {pairs()}; "
                    "kmeans and icg take euclidean or cosine"
                )
