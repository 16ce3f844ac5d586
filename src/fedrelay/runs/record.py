"""A run on disk: its folder, one line a round, the summary; it can be stopped at any moment and goes on exactly."""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from fedrelay import vectors
from fedrelay.data.federation import Examples
from fedrelay.errors import BadInput, within
from fedrelay.runs import checkpoint, measures
from fedrelay.runs.costs import DIRECTIONS, estimates
from fedrelay.runs.latency import Latency
from fedrelay.runs.loop import deployed, start, train
from fedrelay.tasks import Workspaces, evaluate
from fedrelay.types import Algorithm, Engine, State, Tree

Line = dict[str, Any]


@dataclass(frozen=True)
class Evaluate:
    """When the model is tested on the central test set, and what is read off the curve.

    `rounds_to` in the summary is the first round whose accuracy, averaged over the evaluations of the last `smooth`
    rounds, reaches a share of `target` (the accuracy one hopes for, such as the centralised one). `accuracy` in the
    summary is the mean of the `last` evaluations.
    """

    every: int = 5
    target: float = 1.0
    shares: tuple[float, ...] = (0.7, 0.8, 0.9)
    smooth: int = 5
    last: int = 5

    def __post_init__(self) -> None:
        within("every", self.every, least=1)
        within("target", self.target, above=0, most=1)
        within("smooth", self.smooth, least=1)
        within("last", self.last, least=1)
        for share in self.shares:
            within("every one of shares", share, above=0, most=1)


@dataclass(frozen=True)
class Recorder:
    """Trains in a folder: `rounds.jsonl`, `checkpoint/` every `checkpoint_every` rounds, `summary.json` at the end."""

    folder: Path | str
    algorithm: Algorithm
    engine: Engine
    test: Examples
    rounds: int
    name: str = "run"
    evaluate: Evaluate = Evaluate()
    checkpoint_every: int = 10
    resume: bool = False
    classes: NDArray[np.bool_] | None = None
    """Which client has which class, where that is known: (clients, classes)."""
    latency: Latency | None = None
    """What clients are like, if the run is to have a virtual clock."""
    tables: Mapping[str, Any] | None = None
    """The resolved configuration; without one, what the objects say of themselves is written."""
    _noted: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _workspaces(self) -> Workspaces:
        """Where the model is tested."""
        return Workspaces(self.engine.task)

    def __post_init__(self) -> None:
        within("rounds", self.rounds, least=1)
        within("checkpoint", self.checkpoint_every, least=1)

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def run(self) -> Iterator[Line]:
        """Every round's line as it is written; the lines of an earlier part of the same run come first."""
        with alone_in(self.path):
            yield from self._run()

    def done(self) -> int:
        """How many rounds an earlier part of this run has on disk."""
        return checkpoint.newest_round(self.path / "checkpoint")

    def _run(self) -> Iterator[Line]:
        state, lines = self._begin()
        yield from lines
        saved = state.round
        try:
            for after in train(self.algorithm, self.engine, rounds=self.rounds, state=state, latency=self.latency):
                state = after
                line = self._line(state)
                self._note_engine()
                self._append(line)
                if state.round % self.checkpoint_every == 0 or state.round == self.rounds:
                    self._save(state)
                    saved = state.round
                lines.append(line)
                yield line
        finally:  # also after Ctrl-C, an error, or a consumer that has seen enough
            if saved != state.round and self.engine.memories()[0] == state.round:
                self._save(state)
        summary = self.summarise(lines, state)
        checkpoint.write_atomically(self.path / "summary.json", (dumps(summary, indent=2) + "\n").encode())

    def summary(self) -> dict[str, Any]:
        """What `summary.json` says."""
        content: dict[str, Any] = json.loads((self.path / "summary.json").read_text())
        return content

    def _begin(self) -> tuple[State, list[Line]]:
        """The state to go on from: the newest checkpoint, or a fresh start, which is saved at once."""
        found = checkpoint.load(self.path / "checkpoint")
        path = self.path / "rounds.jsonl"
        if found is None:
            if path.is_file() and path.stat().st_size:
                raise BadInput(
                    f"{self.path.resolve()} has rounds but no checkpoint, so the run cannot go on; nothing was "
                    "overwritten: put the checkpoint back, or start again in another folder"
                )
            state = start(self.algorithm, self.engine, self.latency)
            self._write_tables()
            checkpoint.write_atomically(path, b"")
            self._save(state)
            return state, []
        if not self.resume:
            raise BadInput(f"{self.path.resolve()} holds a run already: resume it, or choose another folder")
        state, memories = found
        if state.round > self.rounds:
            raise BadInput(
                f"{self.path} is at round {state.round} already: rounds must be at least that, not {self.rounds}"
            )
        self._check_model(state, memories)
        self.engine.remember(state.round, memories)
        lines = [line for line in read_lines(path) if line["round"] <= state.round]
        if lines and state.round < self.rounds and lines[-1]["round"] % self.evaluate.every:
            lines[-1] |= {"accuracy": None, "loss": None}  # it was tested only because it was the last
        if state.round and len(lines) == state.round - 1:
            lines.append(self._line(state))  # stopped between a round and its line
        if [line["round"] for line in lines] != list(range(1, state.round + 1)):
            raise BadInput(
                f"{path.resolve()} does not hold rounds 1 to {state.round} of its checkpoint: it was changed"
            )
        self._write_tables()
        checkpoint.write_atomically(path, b"".join(encode(line) for line in lines))
        if state.round < self.rounds:
            (self.path / "summary.json").unlink(missing_ok=True)
        return state, lines

    def _write_tables(self) -> None:
        """What decides the results, beside them; only once nothing speaks against the run any more."""
        tables = self.tables or described_run(self)
        path = self.path / "config.toml"
        if self.tables is None and path.is_file():
            found = tomllib.loads(path.read_text(encoding="utf-8"))
            if {**found, "rounds": 0} != {**tables, "rounds": 0}:
                raise BadInput(f"{self.path.resolve()} holds a run of another configuration: choose another folder")
        checkpoint.write_atomically(path, tomli_w.dumps(tables).encode())

    def _check_model(self, state: State, memories: Mapping[int, Tree]) -> None:
        """The saved vectors must be of this model: what is deployed, and what clients keep."""
        saved, layout = len(state.batons[0].params), self.engine.task.layout
        if saved != layout.size:
            raise BadInput(f"{self.path}: the saved model has {saved} numbers, the configured one has {layout.size}")
        for name in self.algorithm.update.keeps:
            sizes = {client: len(memory[name]) for client, memory in memories.items() if name in memory}
            right = (layout.trainable, layout.size)
            client = next((client for client, size in sizes.items() if size not in right), None)
            if client is not None:
                raise BadInput(
                    f"{self.path}: client {client} keeps {name!r} with {sizes[client]} numbers, the configured model "
                    f"trains {layout.trainable}: that memory is another model's"
                )

    def _save(self, state: State) -> None:
        committed, memories = self.engine.memories()
        if committed != state.round:
            raise RuntimeError(f"memories are of round {committed}, the state of round {state.round}")
        checkpoint.save(self.path / "checkpoint", state, memories)

    def _line(self, state: State) -> Line:
        metrics: Mapping[str, float] = {}
        if state.round % self.evaluate.every == 0 or state.round == self.rounds:
            metrics = evaluate(deployed(state, self.algorithm), self.test, self._workspaces)
        log = dict(state.log)
        who = list(log.pop("participants"))  # too long a list for every line
        seen = None if self.classes is None else int(self.classes[who].any(axis=0).sum())
        return {**log, "classes": seen, "accuracy": metrics.get("accuracy"), "loss": metrics.get("loss")}

    def _note_engine(self) -> None:
        """An engine that chose how to run (`auto`) chose some of the bits: the configuration must say so."""
        settings, path = self.engine.settings, self.path / "config.toml"
        if settings is None or settings == self._noted.get("engine") or not path.is_file():
            return
        tables = {**tomllib.loads(path.read_text()), "engine": dict(settings)}
        checkpoint.write_atomically(path, tomli_w.dumps(tables).encode())
        self._noted["engine"] = settings

    def _append(self, line: Line) -> None:
        """The line is on disk before a checkpoint can claim its round."""
        with (self.path / "rounds.jsonl").open("ab") as file:
            file.write(encode(line))
            file.flush()
            os.fsync(file.fileno())

    def summarise(self, lines: Sequence[Line], state: State) -> dict[str, Any]:
        """The figures of a whole run."""
        tested = [line["accuracy"] for line in lines if line["accuracy"] is not None]
        last = tested[-self.evaluate.last :]
        reached = {
            f"{share:g}": rounds_to(lines, share * self.evaluate.target, self.evaluate.smooth)
            for share in self.evaluate.shares
        }
        examples, seconds = sum(line["examples"] for line in lines), sum(line["seconds"] for line in lines)
        return {
            "algorithm": self.name,
            "rounds": state.round,
            "accuracy": sum(last) / len(last) if last else None,
            "best_accuracy": max(tested, default=None),
            "final_accuracy": tested[-1] if tested else None,
            "final_loss": lines[-1]["loss"] if lines else None,
            "jump": mean([abs(after - before) for before, after in pairwise(tested)]),
            "classes": mean([line["classes"] for line in lines if line.get("classes") is not None]),
            "target": self.evaluate.target,
            "rounds_to": reached,
            "traffic_to": {
                share: None if round is None else totals(lines[:round], "bytes")["total"]
                for share, round in reached.items()
            },
            "time_to": {share: None if round is None else simulated(lines[:round]) for share, round in reached.items()},
            "messages": totals(lines, "messages"),
            "bytes": totals(lines, "bytes"),
            "relayed": part_of(lines, "relayed"),
            "describing": part_of(lines, "describing"),
            "parallelism": measures.parallelism([line["groups"] for line in lines]),
            "estimates": estimates(lines, self.engine.task, self.test.take(slice(0, 1))[0]),
            "simulated_seconds": simulated(lines),
            "depth": sum(line["depth"] for line in lines),
            "examples": examples,
            "seconds": seconds,
            "examples_per_second": examples / seconds if seconds else None,
            "drops": sum(len(line["drops"]) for line in lines),
            "params_sha256": vectors.sha256(*deployed(state, self.algorithm).vectors),
        }


def mean(values: Sequence[float]) -> float | None:
    """Of what there is."""
    return statistics.fmean(values) if values else None


def simulated(lines: Sequence[Line]) -> float | None:
    """The time these rounds took on the virtual clock; None if there was none."""
    times = [line["simulated_seconds"] for line in lines]
    return None if None in times else float(sum(times))


def rounds_to(lines: Sequence[Line], goal: float, smooth: int) -> int | None:
    """The first round whose accuracy, averaged over the evaluations of the last `smooth` rounds, is at least `goal`."""
    recent: deque[tuple[int, float]] = deque()
    for line in lines:
        if line["accuracy"] is None:
            continue
        recent.append((line["round"], line["accuracy"]))
        while recent[0][0] <= line["round"] - smooth:
            recent.popleft()
        if sum(accuracy for _, accuracy in recent) / len(recent) >= goal:
            return int(line["round"])
    return None


def totals(lines: Sequence[Line], key: str) -> dict[str, int]:
    """Messages or bytes of these rounds by direction, and in all."""
    by = {direction: sum(line[key][direction] for line in lines) for direction in DIRECTIONS}
    return {**by, "total": sum(by.values())}


def part_of(lines: Sequence[Line], key: str) -> dict[str, int]:
    """Messages and bytes of one kind among all; lines of before there was that kind have none of it."""
    return {what: sum(line.get(key, {}).get(what, 0) for line in lines) for what in ("messages", "bytes")}


def encode(line: Line) -> bytes:
    return (dumps(line) + "\n").encode()


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON as everybody reads it: numbers that are not finite become null."""

    def finite(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: finite(part) for key, part in item.items()}
        if isinstance(item, list | tuple):
            return [finite(part) for part in item]
        return None if isinstance(item, float) and not math.isfinite(item) else item

    return json.dumps(finite(value), indent=indent, allow_nan=False)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Nobody else may write a run into this folder meanwhile; the lock ends with the process, however it ends."""
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "checkpoint" / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BadInput(
            f"{folder.resolve()} is in use by another process: wait for it, or choose another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()


def described_run(recorder: Recorder) -> dict[str, Any]:
    """A run that was made in Python, as far as its objects can be told in a file."""
    engine = recorder.engine
    return {
        "rounds": recorder.rounds,
        "seed": engine.seed,
        "data": {"clients": len(engine.sizes), "examples": sum(engine.sizes), "sizes": fingerprint(engine.sizes)},
        "model": told(engine.task.model),
        "algorithm": {"name": recorder.name, "is": told(recorder.algorithm)},
        "evaluate": told(recorder.evaluate),
        "engine": {"name": type(engine).__name__},
    }


def fingerprint(sizes: Sequence[int]) -> str:
    return hashlib.sha256(repr(tuple(sizes)).encode()).hexdigest()


def told(value: Any) -> Any:
    """A configured object as plain data: dataclasses by their fields, functions by their names."""
    if is_dataclass(value) and not isinstance(value, type):
        said = {item.name: told(getattr(value, item.name)) for item in fields(value)}
        return {"is": type(value).__name__} | {key: part for key, part in said.items() if part is not None}
    if isinstance(value, tuple | list):
        return [told(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__qualname__", type(value).__name__)


def read_lines(path: Path) -> list[Line]:
    """The whole lines of a rounds.jsonl; a last line that was cut off in the writing is passed over."""
    if not path.is_file():
        raise BadInput(
            f"{path.resolve()} is missing: the folder is not a whole run; start again in another --out folder"
        )
    lines = []
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            line = json.loads(text)
            line["round"] + 0
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(
                f"{path.resolve()}, line {number}, is not that of a round ({error}): it is damaged"
            ) from error
        lines.append(line)
    return lines
