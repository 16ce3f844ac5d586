"""A run with real clients, however messages reach them: they agree on the data, and are told what the run is."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from fedrelay import config
from fedrelay.config import schema
from fedrelay.config.experiment import REMOTE, Experiment
from fedrelay.data import Federation
from fedrelay.data.federation import Sent
from fedrelay.data.holdout import held_count
from fedrelay.data.own.brought import ARRAYS, agree, sent_by, standing_in
from fedrelay.data.own.telling import NoMajority, misfits
from fedrelay.engines.remote import Patience, Remote, Wire
from fedrelay.errors import BadInput, say_once, within
from fedrelay.remote import exemplars
from fedrelay.remote.bringing import arrays_in
from fedrelay.remote.exemplars import with_exemplars
from fedrelay.remote.reception import Expected, Reception
from fedrelay.remote.rehearsal import made_up
from fedrelay.remote.works import TEST, works_of
from fedrelay.runs.folder import CONFIG, read_config
from fedrelay.runs.record import Recorder
from fedrelay.tasks import Task
from fedrelay.types import Algorithm, Engine

LOG = logging.getLogger("fedrelay")

MEGABYTE = 1 << 20
GLANCE = 0.2
HOPS = "hops.jsonl"
"""What every visit took: seconds from request to answer, of that at work, and bytes."""
AGREED = "agreed"
"""Where [data] keeps what clients have agreed on, as JSON: a run that goes on needs it."""
TOLD = ("seed", "rounds", "data", "model", "local", "algorithm", "task", "packages")
"""The sections that clients are told of: what they need to build their work, and what they may refuse."""


class Admitting(Wire):
    """A wire that lets clients in, as a reception says."""

    largest: int
    """Bytes of a message of a client."""

    @abstractmethod
    def open(self, reception: Reception, /) -> None:
        """Begin to hear what clients tell of themselves and their data."""

    @abstractmethod
    def offer(self, offer: Mapping[str, Any], expected: Expected, /) -> None:
        """Let clients in: this is the run, and what they must have."""

    @abstractmethod
    def attend(self, seconds: float, /) -> None:
        """Let clients come for so many seconds."""


@dataclass(frozen=True)
class Serving:
    """What is served: the tables of an experiment, and whose data it learns.

    Args:
        tables: the configuration.
        own_data: whether clients bring their own; else each takes its part of what [data] names.
        test: a table, or arrays (.npz), of the server's own to test on, where clients bring theirs.
        exemplars: the same of public examples, which every client is sent for traits that look at them.
        hold_out: the share of its data that every client holds out of training, and tests the model on.
    """

    tables: Mapping[str, Any]
    own_data: bool = False
    test: Path | None = None
    exemplars: Path | None = None
    hold_out: float = 0.0
    out: Path | None = None
    resume: bool = False
    data_dir: Path | None = None
    patience: Patience = Patience()

    def __post_init__(self) -> None:
        within("--hold-out", self.hold_out, least=0)
        if self.hold_out >= 1:
            raise BadInput(f"--hold-out must be below 1, not {self.hold_out:g}: 0.2 leaves most to train on")
        if self.exemplars is not None and not self.own_data:
            raise BadInput("--exemplars goes with --own-data: else exemplars = 10 under [data] takes test examples")


class Host:
    """A run whose clients come over a wire: they train when its recorder runs.

    Args:
        serving: what is served.
        names: who takes part, if the run has not begun before.
        wire: how messages reach them.
        known: why a client with this name and certificate may not come (None: it may).
        largest: bytes of a message of a client; None: what goes with the model.
    """

    def __init__(
        self,
        serving: Serving,
        names: Callable[[], Sequence[str]],
        wire: Admitting,
        *,
        known: Callable[[str, str], str | None] | None = None,
        largest: int | None = None,
    ) -> None:
        self.serving, self.wire, self._largest = serving, wire, largest
        self._before = config_in(serving.out) if serving.resume else {}
        engine = self._before.get("engine", {})
        self.names = tuple(engine.get("clients", ())) or tuple(names())
        if engine and engine.get("hold_out", 0.0) != serving.hold_out:
            raise BadInput(
                f"--hold-out is {serving.hold_out:g}, and this run began with {engine.get('hold_out', 0.0):g}: clients "
                "would train on what they have tested on"
            )
        self.data = dict(config.section_of(serving.tables, "data"))
        self.engine: Remote
        self.reception = Reception(self.names, self.data, own=serving.own_data, known=known)

    def build(self, federation: Federation | None = None) -> Experiment:
        """The experiment with this federation, or with what [data] names."""
        tables = {**self.serving.tables, "data": self.data, "engine": {}}
        return config.build(tables, self.serving.data_dir, federation=federation, engine=self._engine)

    def rehearse(self) -> Experiment:
        """The experiment with data made up in place of the clients': what is wrong with anything else is refused."""
        for path in (self.serving.test, self.serving.exemplars):
            if path is not None and not path.exists():
                raise BadInput(f"{path} is not there: --test and --exemplars name files of the server's own")
        public = self.serving.exemplars is not None or bool(self.data.get("exemplars"))
        errors = []
        for federation in made_up(self.names, self.data, exemplars=public):
            try:
                return self.build(federation)
            except BadInput as error:  # it may be a network for pictures
                errors.append(error)
        raise errors[0]

    def _engine(
        self, algorithm: Algorithm, federation: Federation, task: Task, seed: int
    ) -> tuple[Engine, dict[str, Any]]:
        check_fits(algorithm, federation, self.names)
        self.engine = Remote(
            self.wire,
            task,
            seed,
            sizes=self._trained(federation.sizes),
            works=works_of(algorithm),
            names=self.names,
            prepared=federation.source.prepared,
            patience=self.serving.patience,
        )
        held = {"hold_out": self.serving.hold_out} if self.serving.hold_out else {}
        return self.engine, {"name": REMOTE, "clients": list(self.names), **held}

    def _trained(self, sizes: Sequence[int]) -> list[int]:
        """How many examples every client trains on, of so many that it has."""
        share = self.serving.hold_out
        return [size - held_count(size, share) for size in sizes] if share else list(sizes)

    def open(self) -> Recorder:
        """Agree with the clients on their data if it is theirs, and let them in: the run, ready to go."""
        ours = None if self.serving.own_data else self.build()  # mistakes are refused before anybody comes
        self.wire.open(self.reception)
        agreed: Mapping[str, Any] = {}
        if ours is None:
            ours, agreed = self._agree()
        recorder = ours.record(self.serving.out, resume=self.serving.resume)
        if self.serving.hold_out:
            recorder = replace(recorder, own_test=works_of(ours.algorithm)[TEST])
        self.engine.log = recorder.path / HOPS
        layout = ours.task.layout
        # By default a few models, and what a method may send beside them.
        self.wire.largest = 64 * MEGABYTE + 16 * 4 * layout.size if self._largest is None else self._largest
        sizes = None if self.serving.own_data else self._trained(ours.federation.sizes)
        offer = offer_of(ours, recorder.path, agreed, hold_out=self.serving.hold_out)
        self.wire.offer(offer, Expected(layout.size, layout.trainable, sizes))
        return recorder

    def _agree(self) -> tuple[Experiment, Mapping[str, Any]]:
        """Wait for what clients tell of their data, and put it together; a run that goes on has done so before."""
        text = self._before.get("data", {}).get(AGREED)
        if text is None:
            told = self._described()
            sizes = [int(told[name]["rows"]) if name in told else 0 for name in self.names]
            usual = int(median(size for size in sizes if size))  # of who is yet to come, and says then how many it has
            agreed = {**agreement(told, self.data), "sizes": [size or usual for size in sizes]}
            text = json.dumps({"agreed": agreed, "sent": [list(part) for part in astuple(sent_by(told, agreed))]})
        try:
            found = json.loads(text)
            agreed, sent = found["agreed"], Sent(*(tuple(part) for part in found["sent"]))
            self.data[AGREED] = text
            federation = self._standing_in(agreed, self.serving.test)
            given = self.serving.exemplars
            public = None if given is None else self._standing_in(agreed, given).test
            seed = schema.convert(self.serving.tables.get("seed", 0), int, "seed")
            source = with_exemplars(federation.source, self.data, seed, public)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"[data].{AGREED} cannot be read ({error}): put back an intact config.toml") from None
        return self.build(replace(federation, source=replace(source, prepared=sent))), agreed

    def _standing_in(self, agreed: Mapping[str, Any], test: Path | None) -> Federation:
        """The clients as we see them, with this to test on."""
        tested = arrays_in(test) if test is not None and agreed["kind"] == ARRAYS else test
        return standing_in(self.names, agreed["sizes"], agreed, self.data, test=tested)

    def _described(self) -> dict[str, Mapping[str, Any]]:
        """What clients tell of their data, by name, once enough of them have."""
        least, said = max(math.ceil(self.serving.patience.beginning * len(self.names)), 1), -1
        while True:
            found = dict(sorted(self.reception.descriptions.copy().items()))
            told = {self.names[number]: tree for number, tree in found.items()}
            fitting = self._fitting(told) if len(told) >= least else {}
            if len(fitting) >= least:
                return fitting
            if len(told) != said:
                missing = [name for name in self.names if name not in told]
                LOG.info(
                    "%d of %d clients have described their data (missing: %s)", len(told), len(self.names), missing[:10]
                )
                said = len(told)
            self.wire.attend(GLANCE)

    def _fitting(self, told: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Those whose data goes together; the others are refused, and may come back when they have mended it.
        Nobody, as long as it cannot be said who are the others and more may come."""
        try:
            odd = misfits(told, self.data)
        except NoMajority as error:
            if len(told) == len(self.names):
                raise
            say_once(f"the run waits for more clients: {error}")
            return {}
        if len(odd) == len(self.names):  # each of them alone: it is what [data] says that fits nobody
            raise BadInput(next(iter(odd.values())))
        for name, reason in odd.items():
            self.reception.refuse(self.names.index(name), reason)
        return {name: tree for name, tree in told.items() if name not in odd}


def agreement(told: Mapping[str, Mapping[str, Any]], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What follows from what clients told; what cannot be read is nobody's data."""
    try:
        return agree(told, data)
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        names = ", ".join(list(told)[:10])
        raise BadInput(f"what {names} tell of their data makes no sense together: {error!s:.200}") from None


def config_in(folder: Path | None) -> Mapping[str, Any]:
    """The configuration of a run that is to go on; nothing if there is none yet."""
    if folder is None or not (folder / CONFIG).is_file():
        return {}
    return read_config(folder / CONFIG)


def check_fits(algorithm: Algorithm, federation: Federation, names: Sequence[str]) -> None:
    """Refuse a method without clients, and another number of them than the data has."""
    if algorithm.pooled:
        raise BadInput("[algorithm]: the centralised reference has no clients: `fedrelay run` runs it")
    if len(federation) != len(names):
        raise BadInput(
            f"[data] is split among {len(federation)} clients, and there are {len(names)} names "
            f"({', '.join(names[:10])}): --set data.clients={len(names)}, or name as many"
        )


def offer_of(experiment: Experiment, folder: Path, agreed: Mapping[str, Any], *, hold_out: float) -> dict[str, Any]:
    """What every client is told of the run."""
    told = {key: experiment.tables[key] for key in TOLD if key in experiment.tables}
    public = exemplars.told(experiment.federation.source.public) if agreed else {}
    decides = [told, agreed, hold_out, exemplars.fingerprint(public)]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    run = hashlib.sha256(f"{experiment.fingerprint} {folder.resolve()}".encode()).hexdigest()[:16]
    clients = len(experiment.federation)
    more = {"agreed": agreed, "clients": clients, "hold_out": hold_out, "exemplars": public}
    return {"run": run, "digest": digest, "tables": told, **more}
