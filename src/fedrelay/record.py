"""A run on disk: its folder, one line a round, the summary; it can be stopped at any moment and goes on exactly."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay import checkpoint, measures, vectors
from fedrelay.costs import DIRECTIONS, estimates
from fedrelay.data.federation import Examples
from fedrelay.errors import BadInput, within
from fedrelay.latency import Latency
from fedrelay.run import deployed, start, train
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

    def __post_init__(self) -> None:
        within("rounds", self.rounds, least=1)
        within("checkpoint", self.checkpoint_every, least=1)

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def run(self) -> Iterator[Line]:
        """Every round's line as it is written; the lines of an earlier part of the same run come first."""
        state, lines = self._begin()
        yield from lines
        saved = state.round
        try:
            for after in train(self.algorithm, self.engine, rounds=self.rounds, state=state, latency=self.latency):
                state = after
                line = self._line(state)
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
        checkpoint.write_atomically(self.path / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())

    def summary(self) -> dict[str, Any]:
        """What `summary.json` says."""
        content: dict[str, Any] = json.loads((self.path / "summary.json").read_text())
        return content

    def _begin(self) -> tuple[State, list[Line]]:
        """The state to go on from: the newest checkpoint, or a fresh start, which is saved at once."""
        self.path.mkdir(parents=True, exist_ok=True)
        found = checkpoint.load(self.path / "checkpoint")
        path = self.path / "rounds.jsonl"
        if found is None:
            state = start(self.algorithm, self.engine)
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
        if [line["round"] for line in lines] != list(range(1, state.round + 1)):
            raise BadInput(
                f"{path.resolve()} does not hold rounds 1 to {state.round} of its checkpoint: it was changed"
            )
        checkpoint.write_atomically(path, b"".join(encode(line) for line in lines))
        return state, lines

    def _check_model(self, state: State, memories: Mapping[int, Tree]) -> None:
        """The saved vectors must be of this model: what is deployed, and what clients keep."""
        saved, layout = len(deployed(state)), self.engine.task.layout
        if saved != layout.size:
            raise BadInput(f"{self.path}: the saved model has {saved} numbers, the configured one has {layout.size}")
        for name in getattr(self.algorithm.update, "keeps", ()):
            sizes = {client: len(memory[name]) for client, memory in memories.items() if name in memory}
            client = next((client for client, size in sizes.items() if size != layout.trainable), None)
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
            metrics = self.engine.task.evaluate(deployed(state), self.test)
        log = dict(state.log)
        who = list(log.pop("participants"))  # too long a list for every line
        seen = None if self.classes is None else int(self.classes[who].any(axis=0).sum())
        return {**log, "classes": seen, "accuracy": metrics.get("accuracy"), "loss": metrics.get("loss")}

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
            "target": self.evaluate.target,
            "rounds_to": reached,
            "traffic_to": {
                share: None if round is None else totals(lines[:round], "bytes")["total"]
                for share, round in reached.items()
            },
            "time_to": {share: None if round is None else simulated(lines[:round]) for share, round in reached.items()},
            "messages": totals(lines, "messages"),
            "bytes": totals(lines, "bytes"),
            "relayed": {key: sum(line["relayed"][key] for line in lines) for key in ("messages", "bytes")},
            "parallelism": measures.parallelism([line["groups"] for line in lines]),
            "estimates": estimates(lines, self.engine.task, self.test.take(slice(0, 1))[0]),
            "simulated_seconds": simulated(lines),
            "depth": sum(line["depth"] for line in lines),
            "examples": examples,
            "seconds": seconds,
            "examples_per_second": examples / seconds if seconds else None,
            "drops": sum(len(line["drops"]) for line in lines),
            "params_sha256": vectors.sha256(deployed(state)),
        }


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


def encode(line: Line) -> bytes:
    return (json.dumps(line) + "\n").encode()


def read_lines(path: Path) -> list[Line]:
    """The whole lines of a rounds.jsonl; a last line that was cut off in the writing is passed over."""
    if not path.is_file():
        raise BadInput(
            f"{path.resolve()} is missing: the folder is not a whole run; start again in another --out folder"
        )
    lines = []
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            lines.append(json.loads(text))
        except ValueError as error:
            raise BadInput(f"{path.resolve()}, line {number}, is not JSON ({error}): the file is damaged") from error
    return lines
