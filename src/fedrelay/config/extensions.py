"""Parts of other packages, by the names that their entry points give them.

A package that is installed beside fedrelay may have entry points in groups such as `fedrelay.models`: one group for
every kind of part. Its parts are then chosen by name like ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from fedrelay.algorithms import Method
from fedrelay.errors import BadInput

PREFIX = "fedrelay."


@dataclass(frozen=True)
class Extension:
    """A part of another package, as its entry point names it."""

    kind: str
    name: str
    package: str
    version: str
    reason: str = ""
    """Why it cannot be used; empty if it can."""

    @property
    def origin(self) -> str:
        return f"{self.package} {self.version}"


@cache
def claimed() -> dict[str, dict[str, list[metadata.EntryPoint]]]:
    """All entry points for us: kind → name → those that claim it. Nothing is loaded."""
    found: dict[str, dict[str, list[metadata.EntryPoint]]] = {}
    packages = {str(package.name): package for package in reversed(list(metadata.distributions()))}  # the first counts
    for entry in (entry for package in packages.values() for entry in package.entry_points):
        if entry.group.startswith(PREFIX):
            found.setdefault(entry.group.removeprefix(PREFIX), {}).setdefault(entry.name, []).append(entry)
    return found


def add_to(kind: str, table: Mapping[str, Any]) -> None:
    """Enter the parts of this kind that other packages have into its table, once; note those that cannot be used."""
    if kind not in _ADDED:
        _ADDED[kind] = table, list(_added(kind, table))  # type: ignore[arg-type]


_ADDED: dict[str, tuple[Mapping[str, Any], list[Extension]]] = {}


def _added(kind: str, table: MutableMapping[str, Any]) -> Iterator[Extension]:
    own = set(table)
    for name, entries in claimed().get(kind, {}).items():
        described = [described_by(entry) for entry in entries]
        owners = ["fedrelay itself"] if name in own else []
        owners += [" ".join(one) for one in described]
        for entry, (package, number) in zip(entries, described, strict=True):
            reason = f"the name is claimed by {' and by '.join(owners)}, and only one of them can have it"
            if len(owners) == 1:
                reason = entered(entry, table)
            yield Extension(kind, name, package, number, reason)


def described_by(entry: metadata.EntryPoint) -> tuple[str, str]:
    """The package that an entry point belongs to, and its version."""
    return (entry.dist.name, entry.dist.version) if entry.dist is not None else ("a package without a name", "?")


def entered(entry: metadata.EntryPoint, table: MutableMapping[str, Any]) -> str:
    """Load a part into its table; why not, if it cannot be."""
    try:
        part = entry.load()
        table[entry.name] = fitting(part, table)
    except Exception as error:  # whatever a stranger's module raises: others must still work
        owner = " ".join(described_by(entry))
        return f"{entry.value} of {owner} cannot be loaded ({type(error).__name__}: {error})"
    return ""


def fitting(part: Any, table: Mapping[str, Any]) -> Any:
    """A part as its table holds them: a recipe becomes a row, and where objects are held a class makes one."""
    example = next(iter(table.values()))
    if not callable(part) and not isinstance(part, type(example)):
        raise TypeError(f"expected a class or a function, found {type(part).__name__}")
    if isinstance(example, Method):
        return part if isinstance(part, Method) else Method(part)
    if inspect.isclass(part) and not inspect.isroutine(example) and not inspect.isclass(example):
        return part()
    return part


def extensions(kind: str | None = None) -> list[Extension]:
    """Those of a kind, or of all."""
    return [one for _, found in _ADDED.values() for one in found if kind in (None, one.kind)]


def unknown_kinds() -> list[str]:
    """Entry points in groups that are no kind of part: a word is written wrong."""
    return [
        f"{described_by(entries[0])[0]} has {name!r} in {PREFIX}{kind}, which is no kind of part"
        for kind, names in claimed().items()
        if kind not in _ADDED
        for name, entries in names.items()
    ]


def check(table: Mapping[str, Any], name: object, where: str) -> None:
    """Refuse a name that is claimed twice or cannot be loaded."""
    for known, found in _ADDED.values():
        reason = next((one.reason for one in found if known is table and one.name == name and one.reason), None)
        if reason:
            raise BadInput(f"{where}: {name!r} cannot be used: {reason}")


def used(tables: Mapping[str, Any]) -> dict[str, str]:
    """The packages that a resolved configuration takes parts from, with their versions."""
    names = set(named(tables))
    return {one.package: one.version for one in extensions() if not one.reason and one.name in names}


def named(value: Any, key: str = "") -> Iterator[str]:
    """Every name that a configuration chooses by, also those joined by `+`."""
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from named(item, inner)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from named(item, key)
    elif isinstance(value, str) and key in NAMING:
        yield from (part.strip() for part in value.split("+"))


NAMING = ("name", "optimiser", "loss", "metrics", "headline", "terms")
"""Keys whose value is a name."""


def check_packages(wanted: Any) -> None:
    """Refuse to repeat a run without the packages it had."""
    if not isinstance(wanted, Mapping):
        raise BadInput(f"packages must be a section [packages] of names and versions, not the value {wanted!r}")
    for package, version in wanted.items():
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise BadInput(
                f"[packages]: this run takes parts from {package} {version}, which is not installed"
            ) from None
        if found != version:
            raise BadInput(
                f"[packages]: this run takes parts from {package} {version}, and {found} is installed: install that "
                "version, or take the line away to run with this one"
            )
