"""Configuration: a TOML file to a run that can start. The resolved form is saved beside the results."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedrelay import checkpoint, schema
from fedrelay.algorithms import ALGORITHMS
from fedrelay.data import PARTITIONS, SOURCES, Federation, Iid, Natural, Partition
from fedrelay.engines import ENGINES
from fedrelay.errors import BadInput, within
from fedrelay.models import MODELS
from fedrelay.record import Evaluate, Recorder
from fedrelay.task import Task
from fedrelay.types import Algorithm, Engine
from fedrelay.visits.schedules import SCHEDULES, Schedule
from fedrelay.visits.sgd import Sgd

Tables = dict[str, Any]

CHOICES: dict[Any, schema.Table] = {Schedule: SCHEDULES, Partition: PARTITIONS}
"""Which table a parameter of this type is chosen from."""

NUMBERS = {"rounds": 100, "seed": 0, "checkpoint": 10}
SECTIONS = ("data", "model", "local", "algorithm", "evaluate", "engine")
HARMLESS = ("rounds", "checkpoint")
"""What may change between a run and its continuation without changing what was computed."""


def read(path: Path | str, sets: Iterable[str] = ()) -> Tables:
    """The tables of a TOML file, with `a.b=c` overrides."""
    path = Path(path)
    try:
        tables: Tables = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"there is no file {path.resolve()}: give the name of a TOML configuration") from None
    except (IsADirectoryError, PermissionError, UnicodeDecodeError) as error:
        raise BadInput(f"{path.resolve()} cannot be read as a TOML file: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path.resolve()} is not valid TOML: {error}") from None
    return override(tables, sets)


def override(tables: Mapping[str, Any], sets: Iterable[str]) -> Tables:
    """Tables with `a.b=c` applied; c is read as TOML, or else as a text."""
    result: Tables = json.loads(json.dumps(tables))
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--set {text}: expected key=value, such as algorithm.fraction=0.2")
        *parents, last = key.strip().split(".")
        here = result
        for parent in parents:
            here = here.setdefault(parent, {})
            if not isinstance(here, dict):
                raise BadInput(f"--set {text}: {parent} is a value, not a section")
        try:
            here[last] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            here[last] = value.strip()
    return result


@dataclass(frozen=True)
class Experiment:
    """Everything a configuration names, built and ready to run."""

    tables: Tables
    federation: Federation
    task: Task
    algorithm: Algorithm
    engine: Engine
    evaluate: Evaluate

    @property
    def name(self) -> str:
        return str(self.tables["algorithm"]["name"])

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides the results; it names the run."""
        content = {key: value for key, value in self.tables.items() if key not in HARMLESS}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def record(self, out: Path | str | None = None, *, resume: bool = False) -> Recorder:
        """A recorder in `out` (default: runs/NAME-HASH). A folder that holds something else is refused, not touched."""
        folder = Path(out) if out is not None else Path("runs") / f"{self.name}-{self.fingerprint[:8]}"
        claim(folder, self, resume=resume)
        numbers = {"rounds": self.tables["rounds"], "checkpoint_every": self.tables["checkpoint"]}
        return Recorder(
            folder,
            self.algorithm,
            self.engine,
            self.federation.test,
            name=self.name,
            evaluate=self.evaluate,
            resume=resume,
            **numbers,
        )


def build(tables: Mapping[str, Any]) -> Experiment:
    """Build what the tables name; every mistake in them is refused with its place."""
    schema.check_keys(tables, (*NUMBERS, *SECTIONS), "configuration")
    numbers = {key: schema.convert(tables.get(key, default), int, key) for key, default in NUMBERS.items()}
    within("rounds", numbers["rounds"], least=1)
    within("checkpoint", numbers["checkpoint"], least=1)
    part = {section: section_of(tables, section) for section in SECTIONS}
    seed = numbers["seed"]

    local, resolved_local = schema.build(Sgd, part["local"], "[local]", CHOICES)
    evaluate, resolved_evaluate = schema.build(Evaluate, part["evaluate"], "[evaluate]", CHOICES)
    algorithm, resolved_algorithm = named(ALGORITHMS, part["algorithm"], "[algorithm]", {"local": local})
    federation, resolved_data = build_data(part["data"], seed)
    if algorithm.pooled:
        federation = federation.pooled()
    model, resolved_model = named(MODELS, part["model"], "[model]", {})
    task = Task.of(model, federation)
    at = {"federation": federation, "task": task, "seed": seed}
    engine, resolved_engine = named(ENGINES, {"name": "inline"} | part["engine"], "[engine]", at)
    resolved = (resolved_data, resolved_model, resolved_local, resolved_algorithm, resolved_evaluate, resolved_engine)
    tables = numbers | dict(zip(SECTIONS, resolved, strict=True))
    return Experiment(tables, federation, task, algorithm, engine, evaluate)


def section_of(tables: Mapping[str, Any], section: str) -> Tables:
    value = tables.get(section, {})
    if not isinstance(value, dict):
        raise BadInput(f"{section} must be a section [{section}], not the value {value!r}")
    return value


def named(table: schema.Table, values: Tables, where: str, given: Mapping[str, Any]) -> tuple[Any, Tables]:
    """Build the entry that `name` chooses."""
    target = schema.choose(table, values.get("name"), where)
    rest = {key: value for key, value in values.items() if key != "name"}
    built, resolved = schema.build(target, rest, where, CHOICES, given)
    return built, {"name": values["name"], **resolved}


def build_data(values: Tables, seed: int) -> tuple[Federation, Tables]:
    """The federation of the [data] section: a source, a number of clients, a partition."""
    rest = {key: value for key, value in values.items() if key not in ("clients", "partition")}
    clients = values.get("clients")
    if clients is not None:
        within("[data].clients", schema.convert(clients, int, "[data].clients"), least=1)
    target = schema.choose(SOURCES, rest.get("name"), "[data]")
    if clients is not None and "clients" in schema.parameters(target):
        rest["clients"] = clients
    source, resolved = named(SOURCES, rest, "[data]", {})
    partition: Partition = Iid() if source.owners is None else Natural()
    if "partition" in values:
        partition, _ = schema.build_named(PARTITIONS, values["partition"], "[data].partition", CHOICES)
    elif clients is None:
        clients = 100 if source.owners is None else None
    try:
        federation = Federation.split(source, partition, clients, seed)
    except BadInput as error:
        raise BadInput(f"[data]: {error}") from error
    return federation, resolved | {"clients": len(federation), "partition": schema.plain(partition, CHOICES)}


def claim(folder: Path, experiment: Experiment, *, resume: bool) -> None:
    """Make the folder this experiment's own, or refuse; nothing of another run is ever overwritten."""
    path = folder / "config.toml"
    if path.is_file():
        found = read(path)
        differing = differences(found, experiment.tables)
        if differing:
            raise BadInput(
                f"{folder.resolve()} holds a run of another configuration (it differs in {', '.join(differing[:5])}); "
                "nothing was overwritten: choose another --out"
            )
        if not resume:
            raise BadInput(
                f"{folder.resolve()} holds this run already: add --resume to go on with it, or choose another --out"
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(
            f"{folder.resolve()} exists and is not a run folder; nothing was overwritten: choose another --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.write_atomically(path, tomli_w.dumps(experiment.tables).encode())


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The keys in which two configurations differ, apart from what is harmless."""
    found: list[str] = []
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, f"{prefix}{key}.")
        elif a != b and (prefix or key not in HARMLESS):
            found.append(f"{prefix}{key}")
    return found
