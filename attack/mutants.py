"""Configurations that nobody would write: real ones with wrong types, sizes, keys, nesting, characters and numbers."""

from __future__ import annotations

import copy
import datetime
import random
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import tomli_w
from cases import BASE, COMPARE, GROUPS, LATENCY
from warm import ROOT

Tables = dict[str, Any]
Place = tuple[Any, Any]
"""A table or list, and the key or number in it."""

ODD: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 10**6, -(10**9), 2**31, 2**63 - 1, -(2**63), 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1e-300, 1e300, -1e18, float("nan"), float("inf"), float("-inf")),
    *("", " ", "none", "auto", ".", "..", "../../etc/passwd", "/dev/zero", "/dev/null", "a" * 5000, "x" * 300 + "/y"),
    *(
        "\0",
        "a\0b",
        "\x1b[31mred\x1b[0m",
        "‮txet",
        "é" * 200,
        "𝔘𝔫𝔦",
        "\ud7ff",
        "<script>",
        "%s%n",
        "{0}",
        "NaN",
        "1e999",
    ),
    *(True, False, [], {}, [[]], [{}], {"": ""}, [1, "a", None], {"name": {}}, {"name": []}, {"name": 5}),
    *([0] * 2000, ["x"] * 500, [1e300, -1e300], [[1], [2, 3]], [float("nan")]),
    *(datetime.date(2026, 2, 28), datetime.datetime(1, 1, 1), datetime.time(23, 59, 59)),
)


CLUSTER = "ray"
"""The engine that is left out: it would start a cluster in every run that has it, which takes longer than the run."""


@cache
def bases() -> tuple[Tables, ...]:
    """Every experiment of the repository and every example in its pages; half of them with data that is at hand."""
    found = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "experiments").glob("*.toml"))]
    found = [tables for tables in found if "defences" not in tables]  # a grid of a thousand runs is long in building
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for piece in page.read_text(encoding="utf-8").split("```toml\n")[1:]:
            try:
                found.append(tomllib.loads(piece.partition("```")[0]))
            except tomllib.TOMLDecodeError:  # a part of a file with dots in it
                continue
    found = [one for one in found if one.get("engine", {}).get("name") != CLUSTER]
    small = [{**one, "data": BASE["data"], "model": BASE["model"]} for one in found]
    return (*found, *small, *([BASE, dict(COMPARE.tables), dict(GROUPS.tables), {**BASE, "latency": LATENCY}] * 4))


@cache
def parts() -> tuple[tuple[str, Tables], ...]:
    """Everything that can be named in a configuration, with all its parameters and their defaults."""
    from fedrelay.config import catalogue

    return tuple(
        (kind, {"name": entry["name"], **entry["parameters"]})
        for kind in catalogue.KINDS
        for entry in catalogue.entries(kind)
        if (kind, entry["name"]) != ("engines", CLUSTER)
    )


def mutant(rng: random.Random) -> bytes:
    """A file: tables changed in a few places, and sometimes its text too."""
    tables = copy.deepcopy(rng.choice(bases()))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rng.choice(CHANGES)(tables, rng)
    try:
        text = tomli_w.dumps(tables).encode(errors="surrogatepass")
    except (TypeError, ValueError, OverflowError, AttributeError, RecursionError):
        text = tomli_w.dumps(BASE).encode()  # what TOML itself cannot say
    if rng.random() < 0.15:
        text = rng.choice(TEXT)(text, rng)
    return text


def places(tables: Any) -> Iterator[Place]:
    """Every place that has a value, from the outside in."""
    items = tables.items() if isinstance(tables, dict) else enumerate(tables)
    for key, value in list(items):
        yield tables, key
        if isinstance(value, dict | list):
            yield from places(value)


def anywhere(tables: Tables, rng: random.Random) -> Place:
    found = list(places(tables))[:4000]
    return rng.choice(found) if found else ({"rounds": 1}, "rounds")


def replaced(tables: Tables, rng: random.Random) -> None:
    where, key = anywhere(tables, rng)
    where[key] = copy.deepcopy(rng.choice(ODD))


def resized(tables: Tables, rng: random.Random) -> None:
    """A number that is larger, smaller, of the other type or sign."""
    where, key = anywhere(tables, rng)
    if isinstance(where[key], int | float) and not isinstance(where[key], bool):
        factor = rng.choice((-1, 0, 0.001, 0.5, 2, 1000, 10**12))
        with suppress(OverflowError):  # a whole number that no float can be
            where[key] = where[key] * factor if rng.random() < 0.7 else str(where[key])


def removed(tables: Tables, rng: random.Random) -> None:
    where, key = anywhere(tables, rng)
    if isinstance(where, dict):
        where.pop(key, None)
    elif key < len(where):
        del where[key]


def renamed(tables: Tables, rng: random.Random) -> None:
    where, key = anywhere(tables, rng)
    if isinstance(where, dict) and isinstance(key, str) and key in where:
        new = rng.choice((key + "s", key[:-1], key.upper(), "", "a.b", "\0", "é", "x" * 3000, "name", "runs"))
        where[new] = where.pop(key)


def moved(tables: Tables, rng: random.Random) -> None:
    """A value, or a whole section, from one place to another."""
    source, key = anywhere(tables, rng)
    value = copy.deepcopy(source[key])
    where, other = anywhere(tables, rng)
    where[other] = value


def wrapped(tables: Tables, rng: random.Random) -> None:
    where, key = anywhere(tables, rng)
    value = copy.deepcopy(where[key])
    for _ in range(rng.choice((1, 1, 2, 60))):
        value = [value] if rng.random() < 0.5 else {"name": value}
    where[key] = value


def named(tables: Tables, rng: random.Random) -> None:
    """A part that exists, with all its parameters, where it belongs or where it does not."""
    _, part = rng.choice(parts())
    filled = {key: value for key, value in copy.deepcopy(part).items() if value is not None}
    where, key = anywhere(tables, rng)
    sections = ("data", "model", "algorithm", "engine", "local", "latency", "task", "evaluate", "groups", "attack")
    section = rng.choice(sections)
    if rng.random() < 0.5:
        tables[section] = filled
    else:
        where[key] = filled


def belonging(tables: Tables, rng: random.Random) -> None:
    """A part that exists in its own section, with one of its parameters made odd."""
    sections = {"algorithms": "algorithm", "models": "model", "engines": "engine", "data": "data", "attacks": "attack"}
    own = [(sections[kind], part) for kind, part in parts() if kind in sections]
    section, part = rng.choice(own)
    filled = {key: value for key, value in copy.deepcopy(part).items() if value is not None}
    if len(part) > 1 and rng.random() < 0.8:
        filled[rng.choice([key for key in part if key != "name"])] = copy.deepcopy(rng.choice(ODD))
    tables[section] = filled


CHANGES: tuple[Callable[[Tables, random.Random], None], ...] = (
    *(replaced, replaced, replaced, resized, removed, renamed),
    *(moved, wrapped, named, belonging, belonging),
)


def flipped(text: bytes, rng: random.Random) -> bytes:
    changed = bytearray(text)
    for _ in range(rng.choice((1, 2, 8)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(text: bytes, rng: random.Random) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def doubled(text: bytes, rng: random.Random) -> bytes:
    lines = text.splitlines(keepends=True) or [b"\n"]
    place = rng.randrange(len(lines))
    return b"".join([*lines[:place], lines[place], *lines[place:]])


def inserted(text: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(text) + 1)
    deep = 3000
    odd = (b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"[" * deep, b"\nx = " + b"[" * deep + b"]" * deep, b"\r", b"\x1b[2J")
    long = (
        b"\nseed = " + b"9" * 6000,
        b"\n[" + b"a." * deep + b"b]\n",
        b"\n" + b"k" * 10**5 + b" = 1\n",
        b"# " * 10**5,
    )
    return text[:place] + rng.choice((*odd, *long)) + text[place:]


TEXT: tuple[Callable[[bytes, random.Random], bytes], ...] = (flipped, cut, doubled, inserted, inserted)
