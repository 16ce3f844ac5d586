"""From the [local] section, or another table like it, to how clients train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from fedrelay.config import schema
from fedrelay.errors import BadInput, within
from fedrelay.visits import OBJECTIVES, OPTIMISERS, PULLS, Sharpness, Term, Training

SHORT: dict[str, schema.Table] = {"pull": PULLS, "objective": OBJECTIVES}
"""Other words for a term of this kind: `pull = {name = "proximal"}` is `terms = [{name = "proximal"}]`."""


def build_local(
    values: Any, where: str, choices: schema.Choices, usual: Training | None = None
) -> tuple[Training, dict[str, Any]]:
    """The training that `optimiser` names (SGD unless it is said), and the section with all defaults filled in.

    `pull`, `objective` and `sam` (a radius) are short for terms. What the values leave open is as in the `usual`
    training, if there is one.
    """
    if not isinstance(values, Mapping):
        raise BadInput(f"{where}: expected a table such as {{lr = 0.1}}, not {values!r}")
    values = {**(usual_values(usual, values) if usual is not None else {}), **values}
    if {"epochs", "steps"} <= set(values):
        raise BadInput(f"{where}: epochs and steps exclude each other; give one of them")
    name = values.get("optimiser", "sgd")
    target = schema.choose(OPTIMISERS, name, f"{where}.optimiser")
    known = schema.parameters(target)
    valid = (*known, "optimiser", *SHORT, "sam")
    refuse_keys_of_others(values, valid, name, where)
    schema.check_keys(values, valid, where)
    rest = {key: value for key, value in values.items() if key in known}
    local, resolved = schema.build(target, rest, where, choices)
    terms = (*short_terms(values, where, choices), *local.terms)
    try:
        local = replace(local, terms=terms)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
    resolved["terms"] = schema.plain(local.terms, choices)
    if local.steps is not None:
        del resolved["epochs"]
    return local, {"optimiser": name, **resolved}


def usual_values(usual: Training, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a method would set in this section, of all that is not said there: of another optimiser than the one that is
    named only what does not depend on it, and nothing that what is said excludes."""
    name = next(key for key, kind in OPTIMISERS.items() if kind is type(usual))
    differing = {
        item.name: getattr(usual, item.name)
        for item in fields(usual)
        if item.name != "terms" and getattr(usual, item.name) != item.default
    }
    if values.get("optimiser", name) != name:
        differing = {key: value for key, value in differing.items() if key in ("epochs", "batch", "keep", "validation")}
    if values.get("keep") == "last" or values.get("validation") == 0:
        differing = {key: value for key, value in differing.items() if key not in ("keep", "validation")}
    if "steps" in values:
        differing.pop("epochs", None)
    return {"optimiser": values.get("optimiser", name), **differing}


def refuse_keys_of_others(values: Mapping[str, Any], valid: Sequence[str], name: str, where: str) -> None:
    """Refuse a key that other optimisers have: no other key of this one is what was meant."""
    for key in values:
        owners = [other for other, kind in OPTIMISERS.items() if key in schema.parameters(kind)]
        if key not in valid and owners:
            whose = f"that is of the optimiser {' and '.join(owners)}, not of {name}"
            raise BadInput(f"{where}: unknown key {key!r}: {whose} (there is: {', '.join(valid)})")


def short_terms(values: Mapping[str, Any], where: str, choices: schema.Choices) -> list[Term]:
    """The terms that are said by words of their own."""
    found: list[Term] = []
    for key, table in SHORT.items():
        if values.get(key, schema.NONE) != schema.NONE:
            term, _ = schema.build_named(table, values[key], f"{where}.{key}", choices)
            found.append(term)
    radius = schema.convert(values.get("sam", 0.0), float, f"{where}.sam")
    if radius:
        within(f"{where}.sam", radius, least=0)
        found.append(Sharpness(radius))
    return found
