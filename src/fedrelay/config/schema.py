"""From plain tables (TOML) to the objects they name: the signature of what is built is the schema."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedrelay.config import extensions
from fedrelay.errors import LARGEST, BadInput
from fedrelay.types import GIVEN

Table = Mapping[str, Callable[..., Any]]
Builder = Callable[[Any, str, Mapping[Any, Any]], tuple[Any, dict[str, Any]]]
"""Makes something of a value (found at this place, with these choices) in its own way: the object, and the value with
all defaults filled in."""
Choices = Mapping[Any, Table | Builder]
"""By type: the table that a parameter of this type is chosen from, or who builds it."""
NONE = "none"  # TOML has no null


def choose(table: Table, name: object, where: str) -> Callable[..., Any]:
    """The entry of this name; an unknown name is refused with the nearest valid one."""
    if not isinstance(name, str):
        wrong = "name is missing" if name is None else f"expected a name, not {name!r}"
        raise BadInput(f"{where}: {wrong}; one of {', '.join(table)}")
    extensions.check(table, name, where)
    if name not in table:
        raise BadInput(f"{where}: unknown name {name!r}{nearest(name, table)}")
    return table[name]


def nearest(word: str, valid: Iterable[str]) -> str:
    """A hint: the valid word that looks most like this one, and what there is."""
    valid = list(valid)
    plain = {name.casefold(): name for name in reversed(valid)}
    close = difflib.get_close_matches(word.casefold(), plain, n=1, cutoff=0.5)
    hint = f"; did you mean {plain[close[0]]!r}?" if close else ""
    return f"{hint} (there is: {', '.join(valid)})"


def parameters(target: Callable[..., Any], skip: Iterable[str] = ()) -> dict[str, inspect.Parameter]:
    """What can be configured, in order."""
    if dataclasses.is_dataclass(target):  # what is inherited is annotated in terms of the module it comes from
        hints = typing.get_type_hints(target)
        given = {item.name for item in dataclasses.fields(target) if GIVEN in item.metadata}
        signed = inspect.signature(target).parameters.items()
        found = {name: p.replace(annotation=hints[name]) for name, p in signed if name not in given}
    else:
        found = dict(inspect.signature(target, eval_str=True).parameters)
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: p for name, p in found.items() if name not in skip and p.kind not in several}


def check_keys(values: Mapping[str, Any], valid: Iterable[str], where: str) -> None:
    valid = list(valid)
    for key in values:
        if key not in valid:
            raise BadInput(f"{where}: unknown key {key!r}{nearest(key, valid)}")


def build(
    target: Callable[..., Any],
    values: Mapping[str, Any],
    where: str,
    choices: Choices,
    given: Mapping[str, Any] = types.MappingProxyType({}),
) -> tuple[Any, dict[str, Any]]:
    """Call `target` with a table's values (and what is `given`): the object, and the table with all defaults filled in.

    A parameter whose type is a key of `choices` takes a table with a name, or only the name.
    """
    known = parameters(target, skip=given)
    check_keys(values, known, where)
    arguments: dict[str, Any] = {}
    resolved: dict[str, Any] = {}
    for name, parameter in known.items():
        here = f"{where}.{name}"
        if name not in values:
            if parameter.default is parameter.empty:
                raise BadInput(f"{here} is missing")
            if parameter.default is not None:
                resolved[name] = plain(parameter.default, choices)
            continue
        value, hint = values[name], parameter.annotation
        table = next((choices[part] for part in (hint, *typing.get_args(hint)) if part in choices), None)
        if callable(table) and value != NONE:
            arguments[name], resolved[name] = table(value, here, choices)
        elif isinstance(table, Mapping) and typing.get_origin(hint) is tuple:
            items = [build_named(table, item, here, choices) for item in listed(value, here)]
            arguments[name], resolved[name] = tuple(item for item, _ in items), [plain for _, plain in items]
        elif isinstance(table, Mapping) and value != NONE:
            arguments[name], resolved[name] = build_named(table, value, here, choices)
        elif isinstance(value, Mapping) and (record := record_of(hint)) is not None:
            arguments[name], resolved[name] = build(record, value, here, choices)
        else:
            arguments[name] = convert(value, hint, here)
            resolved[name] = plain(arguments[name], choices)
    try:
        return target(**given, **arguments), resolved
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def listed(value: Any, where: str) -> Sequence[Any]:
    """A list of names, or of tables with a name."""
    if not isinstance(value, list | tuple):
        raise BadInput(f"{where}: expected a list of names (or of tables with a name), not {value!r}")
    return value


def record_of(hint: Any) -> Callable[..., Any] | None:
    """The dataclass that a parameter takes, if it takes one."""
    return next((part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part)), None)  # type: ignore[return-value]


def build_named(table: Table, value: Any, where: str, choices: Choices) -> tuple[Any, dict[str, Any]]:
    """A table `{name = …, …}`, or the name alone, to the object it names."""
    values = {"name": value} if isinstance(value, str) else value
    if not isinstance(values, Mapping):
        raise BadInput(f"{where}: expected a name or a table with a name, not {value!r}")
    target = choose(table, values.get("name"), where)
    rest = {key: item for key, item in values.items() if key != "name"}
    built, resolved = build(target, rest, where, choices)
    return built, {"name": values["name"], **resolved}


def plain(value: Any, choices: Choices) -> Any:
    """A default as TOML would say it."""
    if value is None:
        return NONE
    if isinstance(value, tuple):
        return [plain(item, choices) for item in value]
    if isinstance(value, bool | int | float | str):
        return value
    for table in choices.values():
        for name, target in table.items() if isinstance(table, Mapping) else ():
            if type(value) is target:
                fields = {key: getattr(value, key) for key in parameters(target)}
                return {"name": name} | {k: plain(v, choices) for k, v in fields.items() if v is not None}
    return str(value)


def convert(value: Any, hint: Any, where: str) -> Any:
    """A plain value as the type the parameter wants; nothing is guessed."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value == NONE and type(None) in parts:
            return None
        rest = [part for part in parts if part is not type(None)]
        if len(rest) == 1:
            return convert(value, rest[0], where)
        for part in rest:
            with suppress(BadInput):
                return convert(value, part, where)
        raise BadInput(f"{where}: expected {' or '.join(map(wanted, rest))}, not {value!r}")
    if origin in (tuple, Sequence):
        if not isinstance(value, list | tuple):
            raise BadInput(f"{where}: expected a list, not {value!r}")
        return tuple(convert(item, parts[0], where) for item in value)
    if origin is typing.Literal:
        if value not in parts:
            raise BadInput(f"{where}: expected {wanted(hint)}, not {value!r}")
        return value
    if hint in (int, float) and isinstance(value, int) and abs(value) > LARGEST and not where.endswith("seed"):
        raise BadInput(f"{where}: expected a number below {LARGEST:.1g}, found one of {value.bit_length()} bits")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if inspect.isabstract(hint) or getattr(hint, "_is_protocol", False):
        raise BadInput(f"{where}: expected a name or a table with a name, not {value!r}")
    if isinstance(hint, type) and (not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)):
        raise BadInput(f"{where}: expected {wanted(hint)}, not {value!r}")
    return value


def wanted(hint: Any) -> str:
    """What a parameter of this type takes, in words."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (tuple, Sequence):
        return f"a list ({wanted(parts[0])} each)"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return words[hint] if hint in words else str(getattr(hint, "__name__", hint))
