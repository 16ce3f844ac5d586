"""A run on disk: its folder, one line a round, the summary; it can be stopped at any moment and goes on exactly.

Promised: wherever the process is killed, or the disk is full, the same command with `resume` goes on to the same bits.
Nothing is refused because a cut left it half-made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from numpy.typing import NDArray

from fedrelay import seeds, vectors
from fedrelay.data.examples import Store
from fedrelay.data.federation import ClassesOfClients, Federation
from fedrelay.engines.pool.dispatch import within_cores
from fedrelay.errors import BadInput, within
from fedrelay.kernels.workspace import Computing
from fedrelay.runs import checkpoint, recovered
from fedrelay.runs.claim import Claim, alone_in
from fedrelay.runs.costs import Estimate
from fedrelay.runs.described import described_run
from fedrelay.runs.fitting import check_fits
from fedrelay.runs.folder import (
    AT_THE_END,
    ATTACKERS,
    CONFIG,
    ROUNDS,
    SUMMARY,
    keep,
    read_config,
    read_summary,
    write_summary,
)
from fedrelay.runs.json_files import dumps
from fedrelay.runs.labels import write_labels
from fedrelay.runs.latency import Latency
from fedrelay.runs.log import RoundLog, Summary
from fedrelay.runs.loop import deployed, moved, start, train
from fedrelay.runs.output import write_model
from fedrelay.runs.own_tests import OwnTests, means_of, spread_over
from fedrelay.runs.results import Clients, error_of, read_clients, spread_of, write_results
from fedrelay.runs.rounds import Lines, Noted, counted_lines, encode, fingerprint, logs_of
from fedrelay.runs.summary import Evaluate, summarise
from fedrelay.runs.testing import figures_of, over_clients
from fedrelay.runs.threat import told
from fedrelay.runs.unchanged import Checkpoints
from fedrelay.runs.underway import FOLDER, SECONDS, UnderwayFiles
from fedrelay.tasks import Workspaces
from fedrelay.types import Algorithm, Engine, State, Work


@dataclass(frozen=True)
class Recorder:
    """Trains in a folder: `rounds.jsonl`, `checkpoint/` every `checkpoint_every` rounds; at the end the model, what it
    is worth to every client, and `summary.json`.

    Without a test set nothing is tested, and the model is still there at the end.
    """

    folder: Path | str
    algorithm: Algorithm
    engine: Engine
    test: Store | None
    rounds: int
    name: str = "run"
    evaluate: Evaluate = Evaluate()
    checkpoint_every: int = 10
    resume: bool = False
    classes: ClassesOfClients | NDArray[np.bool_] | None = None
    """Which client has which class, where that is known: (clients, classes)."""
    latency: Latency | None = None
    """What clients are like, if the run is to have a virtual clock."""
    tables: Mapping[str, Any] | None = None
    """The resolved configuration; without one, what the objects say of themselves is written."""
    federation: Federation | None = None
    """Whose clients the result is judged for, where that is wanted; it also tells the names of classes, and the test
    parts of clients that have models of their own."""
    own_test: Work | None = None
    """Asks clients to test the model on examples of their own that they do not train on, where they have some: their
    spread is recorded, and without a test set their mean is the test."""
    other_device: bool = False
    """Whether the run may go on on another device than the one that its checkpoint is of."""
    _noted: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _workspaces(self) -> Workspaces:
        """Where the model is tested: natively, if it is trained so."""
        engine = self.engine
        return Workspaces(engine.task, native=engine.native, computing=Computing(engine.device))

    def __post_init__(self) -> None:
        within("rounds", self.rounds, least=1)
        within("checkpoint", self.checkpoint_every, least=1)
        object.__setattr__(self, "evaluate", self.evaluate.of(self.engine.task.headline))
        if self.evaluate.clients_every is not None and self.federation is None:
            raise BadInput("clients_every evaluates on the examples of all clients: give the recorder the federation")

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def run(self) -> Iterator[RoundLog]:
        """What every round did, as it is written; the rounds of an earlier part of the same run come first."""
        within_cores()
        with alone_in(self.path) as claim:
            yield from self._run(claim)

    def done(self) -> int:
        """How many rounds an earlier part of this run has on disk."""
        return checkpoint.newest_round(self._checkpoints)

    @property
    def _checkpoints(self) -> Path:
        return self.path / checkpoint.FOLDER

    @cached_property
    def _saving(self) -> Checkpoints:
        return Checkpoints(self._checkpoints)

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.path / ROUNDS)

    def _run(self, claim: Claim) -> Iterator[RoundLog]:
        with claim.writing(begun=False):
            state, logs = self._begin()
        underway = UnderwayFiles(self._checkpoints / FOLDER)
        self.engine.keep_in(underway)
        yield from logs
        del logs  # they are in the file: a long run must not need more and more memory
        saved, saved_at = state.round, time.monotonic()
        try:
            for after in train(self.algorithm, self.engine, rounds=self.rounds, state=state, latency=self.latency):
                state = after
                log = self._log(state)
                late = time.monotonic() - saved_at > SECONDS  # what took long must not be lost
                with claim.writing():
                    self._note_engine()
                    recovered.write(self.path, state, self.engine.memories()[1])
                    self._lines.append(log)
                    if state.round % self.checkpoint_every == 0 or state.round == self.rounds or late:
                        self._save(state)
                        saved, saved_at = state.round, time.monotonic()
                    underway.clear()
                yield log
        finally:  # also after Ctrl-C, an error, or a consumer that has seen enough
            self.engine.back_to(state.round)  # Ctrl-C may come when a round is committed and its state not here yet
            if saved != state.round and self.engine.memories()[0] == state.round:
                with claim.writing():
                    self._save(state)
        with claim.writing():
            self._finish(logs_of(self.path / ROUNDS, self._counted(state)), state)

    def summary(self) -> Summary:
        """What `summary.json` says, when the run has ended."""
        found = read_summary(self.path / SUMMARY)
        if found is None:
            raise BadInput(f"{self.path.resolve()} has no {SUMMARY} yet: it is written when the run ends")
        return found

    def _finish(self, logs: Sequence[RoundLog], state: State) -> None:
        """Everything that is written after the last round; the summary last, so that it stands for all of it."""
        predictor = deployed(state, self.algorithm, self.engine)
        write_model(self.path, predictor, self._workspaces, examples=self.test, federation=self.federation)
        clients, quality = write_results(
            self.path,
            predictor,
            self._workspaces,
            test=self.test,
            federation=self.federation,
            each_client=self.evaluate.on == "test",  # a run that settings are chosen by never sees a test example
            told=self._told_at_the_end(state),
        )
        task = self.engine.task
        summary = summarise(
            self.name,
            logs,
            self.evaluate,
            params_sha256=vectors.sha256(*predictor.vectors),
            headline=task.headline,
            estimate=Estimate.of(task, self.test.take(slice(0, 1))[0]) if self.test else None,
        )
        summary = replace(
            summary,
            clients=spread_of(clients),
            calibration_error=error_of(quality),
            tested=predictor.tests + ("" if self.test else HELD_OUT) if self.test or clients else "",
            attacked=self._attacked(logs),
        )
        write_summary(self.path / SUMMARY, summary)

    def _begin(self) -> tuple[State, list[RoundLog]]:
        """The state to go on from: the newest checkpoint, or a fresh start, which is saved at once."""
        found = checkpoint.load(self._checkpoints)
        if found is None:
            return self._start(), []
        if not self.resume:
            raise BadInput(f"{self.path.resolve()} holds a run already: resume it, or choose another folder")
        state, memories = found
        if state.round > self.rounds:
            raise BadInput(
                f"{self.path} is at round {state.round} already: rounds must be at least that, not {self.rounds}"
            )
        check_fits(self.path, state, memories, self.engine, self.algorithm.update)
        state = moved(state, self.engine, other_device=self.other_device)
        self.engine.remember(state.round, memories)
        checkpoint.keep_only(checkpoint.files_in(self._checkpoints)[-1])  # a kill may have left the one before
        return state, self._go_on(state)

    def _start(self) -> State:
        """The state before the first round, in a folder that has none yet."""
        path = self.path / ROUNDS
        if path.is_file() and path.stat().st_size:
            raise BadInput(
                f"{self.path.resolve()} has rounds but no checkpoint, so the run cannot go on; nothing was "
                "overwritten: put the checkpoint back, or start again in another folder"
            )
        state = start(self.algorithm, self.engine, self.latency)
        self._write_tables()
        self._note_clients(state)
        self._lines.restart([])
        self._save(state)
        return state

    def _go_on(self, state: State) -> list[RoundLog]:
        """The rounds up to this state, and files that hold just them."""
        path, lines = self.path / ROUNDS, self._counted(state)
        logs = logs_of(path, lines)
        if state.round and len(logs) == state.round - 1:
            logs.append(self._log(state))  # stopped between a round and its line
            lines.append(encode(logs[-1]))
        if len(logs) != state.round:
            raise BadInput(
                f"{path.resolve()} does not hold rounds 1 to {state.round} of its checkpoint: it was changed"
            )
        self._write_tables()
        self._note_clients(state)
        on_the_way = self._on_the_way(logs[-1], state) if logs and state.round < self.rounds else None
        if on_the_way is not None and on_the_way != logs[-1]:
            logs[-1] = on_the_way
            changed = [*lines[:-1], encode(on_the_way)]
            # A checkpoint that knows both lines comes first: a kill before or after the change leaves one it knows.
            self._save(state, Noted(len(lines), (fingerprint(lines), fingerprint(changed))))
            lines = changed
        self._lines.restart(lines)
        if state.round < self.rounds:
            for name in AT_THE_END:  # they are of an earlier end
                (self.path / name).unlink(missing_ok=True)
        return logs

    def _counted(self, state: State) -> list[bytes]:
        """The lines of the rounds up to this state, as its checkpoint knows them."""
        return counted_lines(self.path / ROUNDS, state.round, checkpoint.noted(self._checkpoints))

    def _write_tables(self) -> None:
        """What decides the results, beside them; only once nothing speaks against the run any more."""
        tables = self.tables or described_run(self)
        path = self.path / CONFIG
        if self.tables is None and path.is_file():
            found = read_config(path)
            if {**found, "rounds": 0} != {**tables, "rounds": 0}:
                raise BadInput(f"{self.path.resolve()} holds a run of another configuration: choose another folder")
        keep(path, tomli_w.dumps(tables))

    def _attacked(self, logs: Sequence[RoundLog]) -> dict[str, float | None]:
        """How often attackers were visited, and what came of it; nothing where everybody is honest."""
        if self.algorithm.threat is None:
            return {}
        figures = self.algorithm.threat.fitted(self.engine.task).watched(self.test)
        visits = {"visits": float(sum(len(log.attacked) for log in logs))}
        return visits | {name: self.evaluate.mean(logs, name) for name in figures}

    def _note_clients(self, state: State) -> None:
        """Who attacks in the whole run, and what clients mostly have, for whoever looks into the folder."""
        if not self.algorithm.pooled:
            write_labels(self.path, self.federation)
        if self.algorithm.threat is not None:
            facts = told(self.algorithm.threat, state.attackers, self.engine.names)
            keep(self.path / ATTACKERS, dumps(facts, indent=2) + "\n")

    def _save(self, state: State, noted: Noted | None = None) -> None:
        committed, memories = self.engine.memories()
        if committed != state.round:
            raise RuntimeError(f"memories are of round {committed}, the state of round {state.round}")
        self._saving.save(state, memories, noted or self._lines.noted())
        self.engine.saved(state.round)

    def _on_the_way(self, log: RoundLog, state: State) -> RoundLog:
        """The line of a round that was the last one, now that others follow it: it may have been tested only for that,
        or on more examples."""
        if log.round % self.evaluate.every:
            log = replace(log, metrics={})
        elif self._some is not self.test:
            log = replace(log, metrics=self._metrics(state))
        kept = self._every_client(log.round) or (self.own_test is not None and log.round % self.evaluate.every == 0)
        return log if kept else replace(log, over_clients={})

    @cached_property
    def _some(self) -> Store | None:
        """What is tested on before the last round."""
        if self.test is None or self.evaluate.sample is None or self.evaluate.sample >= len(self.test):
            return self.test
        chosen = seeds.rng(self.engine.seed, "tested").permutation(len(self.test))[: self.evaluate.sample]
        return self.test.picked(torch.from_numpy(np.sort(chosen)))

    def _log(self, state: State) -> RoundLog:
        """What the last round did, with its test if it is one that is tested."""
        assert state.log is not None
        seen = None if self.classes is None else int(self.classes[list(state.participants)].any(axis=0).sum())
        own = self._over_clients(state) if self._every_client(state.round) else {}
        metrics, told = self._metrics(state), self._told(state)
        if told is not None:
            metrics, own = metrics or finite(means_of(told)), own | finite(spread_over(told))
        # The last: what tests have sent is among it.
        return replace(state.log, classes=seen, metrics=metrics, over_clients=own, wire=self.engine.measured())

    def _told(self, state: State) -> Clients | None:
        """What clients tell of the model on examples of their own, if this is a round that is tested."""
        if self.own_test is None or not (state.round == self.rounds or state.round % self.evaluate.every == 0):
            return None
        predictor = deployed(state, self.algorithm, self.engine)
        self._noted["told"] = state.round, OwnTests(self.own_test, self.engine)(predictor, state)
        found: Clients | None = self._noted["told"][1]
        return found

    def _told_at_the_end(self, state: State) -> Clients | None:
        """The same of the last round; who has gone meanwhile has told it before."""
        round, found = self._noted.get("told", (0, None))
        return found if self.own_test is None or round == state.round else read_clients(self.path)

    def _metrics(self, state: State) -> dict[str, float | None]:
        """The test of this round, if it is one that is tested."""
        last = state.round == self.rounds
        test = self.test if last else self._some
        if not test or not (last or state.round % self.evaluate.every == 0):
            return {}
        predictor, threat = deployed(state, self.algorithm, self.engine), self.algorithm.threat
        found = figures_of(predictor, test, self._workspaces, self.federation)
        if threat is not None:
            found |= threat.fitted(self.engine.task).figures(predictor, test, self._workspaces)
        return finite(found)

    def _every_client(self, round: int) -> bool:
        """Whether the model of this round is evaluated on the examples of all clients."""
        every = self.evaluate.clients_every
        return every is not None and (round % every == 0 or round == self.rounds)

    def _over_clients(self, state: State) -> dict[str, float | None]:
        """What it is worth on them; a run that settings are chosen by never sees a test example."""
        assert self.federation is not None
        predictor, tested = deployed(state, self.algorithm, self.engine), self.evaluate.on == "test"
        return finite(over_clients(predictor, self.federation, self._workspaces, tested=tested))

    def _note_engine(self) -> None:
        """An engine that chose how to run (`auto`) chose some of the bits: the configuration must say so."""
        settings, path = self.engine.settings, self.path / CONFIG
        if settings is None or settings == self._noted.get("engine") or not path.is_file():
            return
        keep(path, tomli_w.dumps({**read_config(path), "engine": dict(settings)}))
        self._noted["engine"] = settings


HELD_OUT = ", on what clients have held out of training"


def finite(figures: Mapping[str, float]) -> dict[str, float | None]:
    """What is not finite is None."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}
