"""docs/configuration.md, read off the code: every key of every section, with its type, its default and what it means.

`python -m fedrelay.studies.configuration_page docs/configuration.md` renews it. What a key means is said by the
docstring of what it configures: under `Args:`, below a field, or in the sentence that mentions it; else by `WORDS`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.algorithms import method
from fedrelay.algorithms.defence import Defence
from fedrelay.algorithms.privacy import Privacy
from fedrelay.config import catalogue, experiment, schema
from fedrelay.config.choices import CHOICES
from fedrelay.config.federation import OPTIONS
from fedrelay.config.task import Wanted
from fedrelay.errors import BadInput
from fedrelay.runs.latency import Latency
from fedrelay.runs.summary import Evaluate
from fedrelay.runs.threat import When
from fedrelay.studies import compare
from fedrelay.studies.attack_grid import crossing
from fedrelay.studies.configuration_words import ABOUT, ATTACK, COMPARE, DATA, GRID, LOCAL, NUMBERS, PACKAGES, WORDS
from fedrelay.studies.groupings import request
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.method_tables import short

HEADS = ("key", "type", "default", "meaning")
Row = tuple[str, str, str, str]


def page() -> str:
    """The whole document."""
    catalogue.extend()
    unknown = {*experiment.SECTIONS, *experiment.OPTIONAL} - set(SECTIONS)
    if unknown:
        raise BadInput(f"the page has no part for the section {', '.join(sorted(unknown))}: add it to SECTIONS")
    parts = [ABOUT, "## Beside the sections", table(said(NUMBERS, experiment.NUMBERS))]
    for section in (*experiment.SECTIONS, *experiment.OPTIONAL):
        parts += [f"## [{section}]", *SECTIONS[section]()]
    parts += ["## Files for `fedrelay compare`", *COMPARE[0], table(said(COMPARE[1], dict.fromkeys(compare.EXTRA)))]
    parts += ["## Files that cross attacks with defences", *GRID[0], table(said(GRID[1], dict.fromkeys(crossing.AXES)))]
    parts += ["## [groups], for `fedrelay groups`", textwrap.fill(doc(request.Request), 120), table(asked())]
    parts += ["## Parts that are chosen by name", *choices()]
    return "\n\n".join(parts) + "\n"


def table(rows: Sequence[Row]) -> str:
    return markdown_table(HEADS, rows)


def said(words: Mapping[str, tuple[str, str]], defaults: Mapping[str, Any]) -> list[Row]:
    """Keys that no signature has: name → type and meaning."""
    missing = set(defaults) ^ set(words)
    if missing:
        raise BadInput(f"what {', '.join(sorted(missing))} means must be said in configuration_words.py")
    return [(f"`{key}`", kind, written(defaults[key]), text) for key, (kind, text) in words.items()]


def named(kind: str, skip: Sequence[str] = ()) -> list[str]:
    """Everything of a kind, each with what it is and its keys."""
    parts = []
    for name, target in catalogue.targets(kind).items():
        parts.append(f"**`{name}`** {catalogue.about(target)}")
        rows = keys_of(target, skip)
        parts += [table(rows)] if rows else []
    return parts


def keys_of(target: Callable[..., Any], skip: Sequence[str] = ()) -> list[Row]:
    """The keys of what is built."""
    if not hasattr(target, "__name__"):  # an object, which has no settings
        return []
    found = schema.parameters(target, skip=(*catalogue.GIVEN, *skip))
    known = meanings(target)
    rows = []
    for name, parameter in found.items():
        required = parameter.default is parameter.empty
        default = "required" if required else written(schema.plain(parameter.default, CHOICES))
        rows.append((f"`{name}`", typed(parameter.annotation), default, known.get(name) or WORDS.get(name, "")))
    return rows


def written(value: Any) -> str:
    """A default as TOML has it."""
    if value is None or value == schema.NONE:
        return "–"
    text = "[" + ", ".join(str(short(item)) for item in value) + "]" if isinstance(value, list) else str(short(value))
    return f"`{text}`"


def typed(hint: Any) -> str:
    """A type in words; what is chosen by name is a link."""
    for part in (hint, *typing.get_args(hint)):
        kind = KINDS_OF.get(part)
        if kind:
            kind = {"attacks": "attack"}.get(kind, kind)  # they have a section of their own
            many = "list of " if typing.get_origin(hint) is tuple else ""
            return f"{many}[{kind}](#{kind})"
    origin, parts = typing.get_origin(hint), [part for part in typing.get_args(hint) if part is not type(None)]
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(map(typed, parts)))
    if origin is typing.Literal:
        return " or ".join(f'`"{part}"`' for part in parts)
    if origin in (tuple, Sequence):
        return f"list of {several(typed(parts[0]))}" if parts else "list"
    return TYPES.get(hint, getattr(hint, "__name__", str(hint)).lower())


def several(words: str) -> str:
    return words.replace("list of", "lists of", 1) if words.startswith("list of") else f"{words}s"


TYPES = {int: "whole number", float: "number", bool: "true or false", str: "text", Path: "text"}
KINDS_OF = {
    part: next((kind for kind, other in catalogue.KINDS.items() if other is known), "local")
    for part, known in CHOICES.items()
}
"""Which part of the page has what a parameter of this type is chosen from."""


def meanings(target: Callable[..., Any]) -> dict[str, str]:
    """What the docstrings say of the keys: of a class also those of the classes above it."""
    found: dict[str, str] = {}
    for one in reversed(target.__mro__[:-1] if inspect.isclass(target) else (target,)):
        text = inspect.cleandoc(one.__doc__ or "")
        own: dict[str, str] = {}
        for sentence in reversed(sentences(text)):  # the first that mentions a key is about it
            own |= dict.fromkeys(re.findall(r"`(\w+)`", sentence), sentence)
        own |= dict(documented(one)) if inspect.isclass(one) else {}
        found |= own | {key: elsewhere(key, text) for key, text in arguments_of(text).items()}
    return {key: text for key, text in found.items() if text}


def elsewhere(key: str, text: str) -> str:
    """What a method says that is referred to; of a class above, it is known already."""
    referred = re.match(r"see `(\w+)`", text)
    if referred is None:
        return text
    recipe = catalogue.targets("algorithms").get(referred[1])
    return "" if recipe is None else meanings(recipe).get(key, "")


def sentences(text: str) -> list[str]:
    prose = re.split(r"\n\s*Args:\n", text)[0]
    paragraphs = [" ".join(part.split()) for part in prose.split("\n\n")]
    return [one for part in paragraphs for one in re.split(r"(?<=[.;:]) (?=[A-Z`])", part)]


def arguments_of(text: str) -> dict[str, str]:
    """What stands under `Args:`; a line may be about several."""
    found: dict[str, str] = {}
    keys: list[str] = []
    for line in "".join(re.findall(r"Args:\n((?:[ ]{4}.*\n?|\n)+)", text + "\n")).splitlines():
        start = re.match(r" {4}(\w+(?:, \w+)*): (.*)", line)
        if start:
            keys = start[1].split(", ")
            found |= dict.fromkeys(keys, start[2])
        elif line.strip():
            found |= {key: f"{found[key]} {line.strip()}" for key in keys}
    return found


def documented(one: type) -> Iterator[tuple[str, str]]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
    except (OSError, TypeError):  # written in C
        return
    assert isinstance(body, ast.ClassDef)
    for item, below in zip(body.body, body.body[1:], strict=False):
        text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and isinstance(text, str):
            yield item.target.id, " ".join(text.split())


def doc(target: object) -> str:
    return " ".join((inspect.getdoc(target) or "").split())


def asked() -> list[Row]:
    """The keys of [groups]."""
    known = meanings(request.Request)
    kinds = {key: f"list of [{key}](#{key})" for key in ("traits", "distances", "groupers")} | {
        "epochs": "list of whole numbers",
        "clients": "whole number, or list of them or of texts",
    }
    defaults = {"repeats": 3, "clients": request.SHOWN}
    return [
        (f"`{key}`", kinds.get(key, "whole number"), written(defaults.get(key)), known.get(key) or WORDS[key])
        for key in request.KEYS
    ]


def choices() -> list[str]:
    """The parts that several sections choose from."""
    shown = ("algorithms", "data", "models", "engines", "optimisers", "attacks")
    return [text for kind in catalogue.KINDS if kind not in shown for text in (f"### {kind}", *named(kind))]


def data() -> list[str]:
    usual = {"share": 1.0, "test_share": 1.0, "augment": False, "exemplars": 0, "validation": 0.0}
    common = said(DATA, dict.fromkeys(("name", "clients", *OPTIONS)) | usual)
    return [table(common), "By name, besides these:", *named("data", ("clients",))]


def local() -> list[str]:
    return [
        table(said(LOCAL, dict.fromkeys(LOCAL) | {"optimiser": "sgd"})),
        "By optimiser, besides these:",
        *named("optimisers"),
    ]


def algorithm() -> list[str]:
    name = ("`name`", "text", "required", "a method, or several joined by `+`, such as `fedseq+fedprox`")
    parts = [table([name, *keys_of(method)])]
    for key, kind in TABLES.items():
        parts += [f"`[algorithm.{key}]`: {opening(kind)}", table(keys_of(kind))]
    return [*parts, "By name, besides these:", *named("algorithms")]


TABLES: dict[str, type] = {"defence": Defence, "privacy": Privacy}
"""Keys of [algorithm] that are tables of their own."""


def opening(target: object) -> str:
    """What a docstring says before its arguments."""
    return " ".join(sentences(inspect.getdoc(target) or ""))


def attack() -> list[str]:
    name = ("`name`", "text", "required", f"one of {', '.join(f'`{name}`' for name in catalogue.targets('attacks'))}")
    return [ATTACK, table([name, *keys_of(When)]), "By name, besides these:", *named("attacks")]


def chosen(kind: str, default: str) -> list[str]:
    name = ("`name`", "text", default, f"one of {', '.join(f'`{name}`' for name in catalogue.targets(kind))}")
    return [table([name]), "By name, besides this:", *named(kind)]


SECTIONS: dict[str, Callable[[], list[str]]] = {
    "data": data,
    "model": lambda: chosen("models", "required"),
    "local": local,
    "algorithm": algorithm,
    "evaluate": lambda: [textwrap.fill(doc(Evaluate), 120), table(keys_of(Evaluate))],
    "engine": lambda: chosen("engines", '`"auto"`'),
    "latency": lambda: [textwrap.fill(doc(Latency), 120), table(keys_of(Latency))],
    "task": lambda: [textwrap.fill(doc(Wanted), 120), table(keys_of(Wanted))],
    "attack": attack,
    "packages": lambda: [PACKAGES],
}
"""What the page says of every section."""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
