"""Configuration: a TOML file to a run that can start. The resolved form is saved beside the results."""

from __future__ import annotations

import copy
import hashlib
import json
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedrelay.config import catalogue, extensions, schema
from fedrelay.config.attack import build_attack
from fedrelay.config.attack import keys_of as attack_keys
from fedrelay.config.choices import CHOICES
from fedrelay.config.federation import federate
from fedrelay.config.federation import keys_of as data_keys
from fedrelay.config.local import build_local
from fedrelay.config.method import build_method, usual_of, with_fraction
from fedrelay.config.method import keys_of as method_keys
from fedrelay.config.task import build_evaluate, build_task
from fedrelay.data import Federation, Store
from fedrelay.engines import ENGINES, Auto, bits
from fedrelay.errors import BadInput, within
from fedrelay.models import MODELS
from fedrelay.runs.latency import Latency
from fedrelay.runs.ledger import check_budget
from fedrelay.runs.loop import adapted, check_rounds
from fedrelay.runs.record import Recorder
from fedrelay.runs.summary import Evaluate
from fedrelay.system import devices, files, notebook
from fedrelay.tasks import Task
from fedrelay.types import Algorithm, Engine

Tables = dict[str, Any]
MakeEngine = Callable[[Algorithm, Federation, Task, int], tuple[Engine, Tables]]
"""Makes an engine for a method, clients, a task and a seed, and says what [engine] is in the resolved configuration."""

LONGEST = 10_000_000
"""Bytes of a configuration; one with every client's speed and bandwidth has less."""
DEEPEST = 50
NUMBERS = {"rounds": 100, "seed": 0, "checkpoint": 10}
OPTIONAL = ("latency", "task", "attack", "packages")
"""Sections that a configuration need not have: without [latency] there is no virtual clock, without [task] the model
learns what there is to learn by its usual loss, without [attack] everybody is honest; [packages] says which other
packages a run took parts from, and is written by the run."""
SECTIONS = ("data", "model", "local", "algorithm", "evaluate", "engine")
REMOTE = "remote"
"""What [engine] says of a run with real clients."""
DEVICE = "engine.device"
HARMLESS = ("rounds", "checkpoint")
"""What may change between a run and its continuation without changing what was computed."""


def read(path: Path | str, sets: Iterable[str] = ()) -> Tables:
    """The tables of a TOML file, with `a.b=c` overrides."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
        if len(content) > LONGEST:
            raise BadInput(f"{path} has more than {LONGEST:,} bytes: expected a TOML configuration")
        if any(line.partition(b"=")[0].count(b".") > 20 * DEEPEST for line in content.splitlines()):
            raise RecursionError  # tomllib takes minutes over such a key
        tables: Tables = tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no file {path.absolute()}: give the name of a TOML configuration") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path.absolute()} is not valid TOML: {error}") from None
    except BadInput:
        raise
    except (OSError, ValueError) as error:  # not text, a number of thousands of digits, or a name that no file can have
        raise BadInput(f"{str(path)!r:.300} cannot be read as a TOML file: {error}") from None
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply: expected a TOML configuration") from None
    return override(tables, sets)


def override(tables: Mapping[str, Any], sets: Iterable[str]) -> Tables:
    """Tables with `a.b=c` applied; c is read as TOML, or else as a text."""
    result = dict(tables)
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--set {text}: expected key=value, such as algorithm.fraction=0.2")
        try:
            found = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found = value.strip()
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, or thousands of brackets
            raise BadInput(f"--set {text:.100}: the value cannot be read ({error})") from None
        result = with_values(result, {key.strip(): found}, f"--set {text}")
    return copy.deepcopy(result)


def with_values(tables: Mapping[str, Any], values: Mapping[str, Any], where: str = "") -> Tables:
    """Tables with these values at their places, by keys such as `local.lr`."""
    result: Tables = copy.deepcopy(dict(tables))
    for key, value in values.items():
        *parents, last = key.split(".")
        if len(parents) > DEEPEST:
            raise BadInput(f"{key:.100}: {len(parents)} sections are more than any configuration has")
        here = result
        for parent in parents:
            here = here.setdefault(parent, {})
            if not isinstance(here, dict):
                raise BadInput(f"{where or key}: {parent} is a value, not a section")
        here[last] = copy.deepcopy(value)
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
    latency: Latency | None = None
    data_dir: Path | str | None = None
    clients: Federation | None = None
    """The federation before it was pooled: the reference is judged for every client too."""

    @property
    def name(self) -> str:
        return str(self.tables["algorithm"]["name"])

    @property
    def judged_by(self) -> Store:
        """What the model is tested on as rounds go by."""
        held = self.federation.validation if self.evaluate.on == "validation" else None
        return self.federation.evaluated if held is None else held

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides the results; it names the run."""
        content = {key: value for key, value in self.tables.items() if key not in HARMLESS}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _repr_html_(self) -> str:
        return notebook.facts(f"Experiment {self.name}, {self.fingerprint[:8]}", in_lines(self.tables))

    def record(self, out: Path | str | None = None, *, resume: bool = False, other_device: bool = False) -> Recorder:
        """A recorder in `out` (default: runs/NAME-HASH). A folder that holds something else is refused, not touched.
        With `other_device` a run may go on on another device than the one that it began on."""
        folder = Path(out) if out is not None else Path("runs") / f"{self.name}-{self.fingerprint[:8]}"
        claim(folder, self, resume=resume, data_dir=self.data_dir, other_device=other_device)
        numbers = {"rounds": self.tables["rounds"], "checkpoint_every": self.tables["checkpoint"]}
        return Recorder(
            folder,
            self.algorithm,
            self.engine,
            self.judged_by,
            name=self.name,
            evaluate=self.evaluate,
            resume=resume,
            latency=self.latency,
            classes=self.federation.classes_of_clients(),
            tables=self.tables,
            federation=self.clients or self.federation,
            other_device=other_device,
            **numbers,
        )


def build(
    tables: Mapping[str, Any],
    data_dir: Path | str | None = None,
    *,
    federation: Federation | None = None,
    engine: MakeEngine | None = None,
) -> Experiment:
    """Build what the tables name, with data sets from `data_dir`; every mistake is refused with its place.

    A `federation` that is given stands for what [data] names, an `engine` for what [engine] names.
    """
    catalogue.extend()
    schema.check_keys(tables, (*NUMBERS, *SECTIONS, *OPTIONAL), "configuration")
    extensions.check_packages(tables.get("packages", {}))
    part = {section: section_of(tables, section) for section in SECTIONS}
    usual_local, usual_rounds = usual_of(part["algorithm"])
    usual = NUMBERS | ({} if usual_rounds is None else {"rounds": usual_rounds})
    numbers = {key: schema.convert(tables.get(key, default), int, key) for key, default in usual.items()}
    within("rounds", numbers["rounds"], least=1)
    within("checkpoint", numbers["checkpoint"], least=1)
    seed = numbers["seed"]

    local, resolved_local = build_local(part["local"], "[local]", CHOICES, usual_local)
    evaluate, resolved_evaluate = schema.build(Evaluate, part["evaluate"], "[evaluate]", CHOICES)
    algorithm, resolved_algorithm = build_method(part["algorithm"], local)
    if "rounds" not in tables and algorithm.plan.rounds is not None:
        numbers["rounds"] = algorithm.plan.rounds
    check_rounds(algorithm, numbers["rounds"])
    if federation is None:
        federation, resolved_data = federate(part["data"], seed, data_dir)
    else:
        resolved_data = part["data"]
    algorithm, resolved_algorithm = build_method(with_fraction(resolved_algorithm, len(federation)), local)
    algorithm = replace(algorithm, merge=algorithm.merge.with_root(federation.validation))
    check_budget(algorithm, federation.sizes, numbers["rounds"])
    if evaluate.on == "validation" and federation.validation_rows is None:
        raise BadInput("[evaluate].on is validation, but nothing is held out for it: say [data] validation = 0.1")
    clients = federation
    if algorithm.pooled:
        federation = federation.pooled()
    model, resolved_model = named(MODELS, part["model"], "[model]", {})
    wanted = section_of(tables, "task") if "task" in tables else None
    task, resolved_task = build_task(wanted, model, federation)
    evaluate, resolved_evaluate = build_evaluate(evaluate, resolved_evaluate, task)
    task = adapted(algorithm, task)
    hostile = section_of(tables, "attack") if "attack" in tables else None
    whose = {"clients": len(federation), "rounds": numbers["rounds"]}
    threat, resolved_attack = build_attack(hostile, algorithm, task, **whose, real=engine is not None)
    algorithm = replace(algorithm, threat=threat)
    at = {"federation": federation, "task": task, "seed": seed}
    if engine is None:
        relaying, resolved_engine = named(ENGINES, {"name": "auto"} | part["engine"], "[engine]", at)
        if "device" in resolved_engine:
            resolved_engine["device"] = devices.chosen(resolved_engine["device"])
    else:
        relaying, resolved_engine = engine(algorithm, federation, task, seed)
    resolved = (resolved_data, resolved_model, resolved_local, resolved_algorithm, resolved_evaluate, resolved_engine)
    latency, resolved_latency = build_latency(tables, len(federation), seed, pooled=algorithm.pooled)
    tables = numbers | dict(zip(SECTIONS, resolved, strict=True)) | resolved_task | resolved_latency | resolved_attack
    packages = extensions.used(tables)
    tables |= {"packages": packages} if packages else {}
    return Experiment(tables, federation, task, algorithm, relaying, evaluate, latency, data_dir, clients)


def keys_of(section: str, name: object) -> Collection[str] | None:
    """What a section may say if it names this; None for a section that names nothing."""
    catalogue.extend()
    if section == "algorithm":
        return method_keys(name)
    if section == "data":
        return data_keys(name)
    if section == "attack":
        return attack_keys(name)
    table: schema.Table | None = {"model": MODELS, "engine": ENGINES}.get(section)  # type: ignore[assignment]
    if table is None:
        return None
    target = schema.choose(table, name, f"[{section}]")
    return {"name", *schema.parameters(target, skip=("federation", "task", "seed"))}


def build_latency(tables: Mapping[str, Any], clients: int, seed: int, *, pooled: bool) -> tuple[Latency | None, Tables]:
    """The clients of the [latency] section, if there is one; the reference has no clients whose time could be told."""
    if "latency" not in tables:
        return None, {}
    latency, resolved = schema.build(Latency, section_of(tables, "latency"), "[latency]", CHOICES)
    if not pooled:
        latency.draw(clients, seed)  # what is given for other clients than these is refused now
    return latency, {"latency": resolved}


def section_of(tables: Mapping[str, Any], section: str) -> Tables:
    """A section of the tables, empty where there is none; a value in its place is refused."""
    value = tables.get(section, {})
    if not isinstance(value, dict):
        raise BadInput(f"{section} must be a section [{section}], not the value {value!r}")
    return value


def named(table: schema.Table, values: Tables, where: str, given: Mapping[str, Any]) -> tuple[Any, Tables]:
    """Build the entry that `name` chooses."""
    if table is ENGINES and values.get("name") == REMOTE:
        raise BadInput("[engine]: remote is for real clients: `fedrelay serve` runs it, and goes on with such a run")
    target = schema.choose(table, values.get("name"), where)
    rest = {key: value for key, value in values.items() if key != "name"}
    built, resolved = schema.build(target, rest, where, CHOICES, given)
    return built, {"name": values["name"], **resolved}


def claim(
    folder: Path,
    experiment: Experiment,
    *,
    resume: bool,
    data_dir: Path | str | None = None,
    other_device: bool = False,
) -> None:
    """Refuse a folder that is not this experiment's; nothing of another run is ever overwritten."""
    path = folder / "config.toml"
    if path.is_file():
        found = read(path)
        chosen = found.get("engine")
        if (
            isinstance(experiment.engine, Auto)
            and isinstance(chosen, dict)
            and chosen.get("name") in ("inline", "pool", "stacked")
        ):
            wanted = experiment.tables["engine"].get("device")
            if devices.kind_of(wanted) != devices.kind_of(chosen.get("device")):
                chosen = {**chosen, "device": wanted}
            experiment.engine.choose(chosen)  # as it did when the run began
            experiment.tables["engine"] = chosen
        differing = differences(found, experiment.tables)
        if differing and any(key not in flat(found) for key in differing):
            # an option that did not exist then had its default
            differing = differences(rebuilt(path, found, data_dir), experiment.tables)
        if differing == [DEVICE] and not other_device:
            before, now = (devices.kind_of(each["engine"].get("device")) for each in (found, experiment.tables))
            raise BadInput(
                f"{folder.resolve()} holds a run that began on {before}, and would go on on {now}, to the bits of "
                "neither; nothing was overwritten: --other-device says that this is wanted"
            )
        if differing and differing != [DEVICE]:
            raise BadInput(
                f"{folder.resolve()} holds a run of another configuration (it differs in {', '.join(differing[:5])}); "
                "nothing was overwritten: choose another --out"
            )
        if not resume:
            raise BadInput(
                f"{folder.resolve()} holds this run already: add --resume to go on with it, or choose another --out"
            )
    elif blocked(folder):
        raise BadInput(
            f"{folder.resolve()} exists and is not a run folder; nothing was overwritten: choose another --out"
        )


def rebuilt(path: Path, found: Tables, data_dir: Path | str | None) -> Tables:
    """What a run folder's own configuration resolves to today."""
    try:
        return build(found, data_dir).tables
    except BadInput as error:
        raise BadInput(
            f"{path.resolve()} is damaged or of another version ({error}); nothing was overwritten: put back an intact "
            "copy, or choose another --out"
        ) from error


def blocked(folder: Path) -> bool:
    """Whether something else is where the run's folder should be."""
    above = next(part for part in (folder, *folder.absolute().parents) if part.exists())
    if above != folder:
        return not above.is_dir()
    if not folder.is_dir():
        return True
    # A run that was killed while it wrote its very first file has left a part of it, which is no reason to refuse.
    return any(file.name != "checkpoint" and not files.PART.fullmatch(file.name) for file in folder.iterdir())


def in_lines(tables: Mapping[str, Any]) -> dict[str, str]:
    """One line for every section, and for every value that is in none."""
    return {
        f"[{key}]" if isinstance(value, Mapping) else key: (
            ", ".join(f"{name} = {json.dumps(each, ensure_ascii=False)}" for name, each in value.items())
            if isinstance(value, Mapping)
            else str(value)
        )
        for key, value in tables.items()
    }


def flat(tables: Mapping[str, Any], prefix: str = "") -> list[str]:
    """All keys of nested tables, as a.b.c."""
    keys: list[str] = []
    for key, value in tables.items():
        keys += flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [f"{prefix}{key}"]
    return keys


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The keys in which two configurations differ, apart from what is harmless."""
    found: list[str] = []
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if prefix or key != "engine" or not a or bits(a) != bits(b):  # workers, for example, change nothing
                found += differences(a, b, f"{prefix}{key}.")
        elif a != b and (prefix or key not in HARMLESS):
            found.append(f"{prefix}{key}")
    return found
