"""From the [algorithm] section to a method, or to several joined by `+`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fedrelay.algorithms import ALGORITHMS, Change, method
from fedrelay.algorithms.change import usual_fraction, usual_local, usual_rounds
from fedrelay.config import extensions, schema
from fedrelay.config.choices import CHOICES
from fedrelay.errors import BadInput
from fedrelay.types import Algorithm, Work
from fedrelay.visits import Training

WHERE = "[algorithm]"


def build_method(values: Mapping[str, Any], local: Work) -> tuple[Algorithm, dict[str, Any]]:
    """The method that the name says, with this local training, and the section with all defaults filled in.

    What only one of several methods knows goes to that method; a parameter of two of them is refused. The fraction, the
    sampler and the merge are for all of them together.
    """
    recipes = recipes_of(values.get("name"))
    names, known = list(recipes), {name: schema.parameters(recipe) for name, recipe in recipes.items()}
    for key in values:
        owners = [name for name in names if key in known[name]]
        if len(owners) > 1:
            raise BadInput(f"{WHERE}: {key} is a parameter of {' and of '.join(owners)}: say it to one of them alone")
    own = {key: value for key, value in values.items() if any(key in keys for keys in known.values())}
    changes: list[Change] = []
    resolved: dict[str, Any] = {"name": values["name"]}
    for name, recipe in recipes.items():
        change, settings = schema.build(recipe, {k: v for k, v in own.items() if k in known[name]}, WHERE, CHOICES)
        changes.append(change)
        resolved |= settings
    rest = {key: value for key, value in values.items() if key not in ("name", *own)}
    common = {} if any(change.pooled for change in changes) else schema.parameters(method, skip=("local",))
    schema.check_keys(rest, (*common, *(key for keys in known.values() for key in keys)), WHERE)
    made = partial(method, *changes)
    try:
        algorithm, settings = schema.build(made, rest, WHERE, CHOICES, {"local": local})
    except BadInput as error:
        text = str(error).removeprefix(f"{WHERE}: ")
        if len(names) == 1 or text.startswith(WHERE):
            raise
        raise BadInput(f"{WHERE}: {' + '.join(names)}: {text}") from error
    return algorithm, {**resolved, **(settings if common else {})}


def with_fraction(resolved: Mapping[str, Any], clients: int) -> dict[str, Any]:
    """The section with the fraction that so many clients have if nobody says one, so that a run can be repeated."""
    changes = [recipe() for recipe in recipes_of(resolved["name"]).values()]
    if "fraction" in resolved or any(change.pooled for change in changes):
        return dict(resolved)
    return {**resolved, "fraction": usual_fraction(*changes).among(clients)}


def usual_of(values: Mapping[str, Any]) -> tuple[Training | None, int | None]:
    """What the methods of this section say of others where those are silent: how clients train, how many rounds there
    are."""
    changes: list[Change] = []
    for recipe in recipes_of(values.get("name")).values():
        own = {key: value for key, value in values.items() if key in schema.parameters(recipe)}
        changes.append(schema.build(recipe, own, WHERE, CHOICES)[0])
    return usual_local(*changes), usual_rounds(*changes)


def keys_of(name: object) -> set[str]:
    """What the [algorithm] section of this method (or these, joined) may say: its own parameters, and those of all
    methods that it leaves open."""
    recipes = recipes_of(name)
    changes = [recipe() for recipe in recipes.values()]
    common = {} if any(change.pooled for change in changes) else schema.parameters(method, skip=("local",))
    decided = {"merge"} if any(change.merge is not None for change in changes) else set()
    own = {key for recipe in recipes.values() for key in schema.parameters(recipe)}
    return {"name", *own, *(set(common) - decided)}


def recipes_of(name: object) -> dict[str, Callable[..., Change]]:
    """The recipes of the methods that are joined by `+`."""
    table = {key: row.recipe for key, row in ALGORITHMS.items()}
    for one in names_of(name):
        extensions.check(ALGORITHMS, one, WHERE)
    return {one: schema.choose(table, one, WHERE) for one in names_of(name)}


def names_of(name: object) -> list[Any]:
    """The names that are joined by `+`."""
    if not isinstance(name, str):
        return [name]  # refused where it is chosen by
    parts = [part.strip() for part in name.split("+")]
    if len(set(parts)) < len(parts):
        raise BadInput(f"{WHERE}: {name} names a method twice; once is enough")
    return parts
