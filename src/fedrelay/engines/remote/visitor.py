"""A client's side of a visit: what it is asked to do, done with its own data and its own memory."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedrelay.data.federation import ClientData
from fedrelay.engines.relay import attempt, in_full
from fedrelay.engines.remote.messages import SAME, Done, Failed, Request, baton_of
from fedrelay.engines.remote.trees import Malformed, decode, encode
from fedrelay.system import files
from fedrelay.system.threads import operator_threads
from fedrelay.tasks import Task, Workspaces
from fedrelay.types import Drop, Tree, Vector, Visit, Work

LOG = logging.getLogger("fedrelay")

NAME = re.compile(r"[0-9a-f]{8}-[0-9]+-[0-9]+-[0-9]+")


OURS = ("builtins", "torch", "numpy", "fedrelay")
"""Where errors come from whose names say nothing about a client."""


def kept_back(error: Exception) -> str:
    """The server is told what kind of error there was; its words may name files and quote rows, and stay here."""
    LOG.error("a visit has failed: %s", in_full(error))
    known = type(error).__module__.partition(".")[0] in OURS
    return f"failed at its work ({type(error).__name__ if known else 'an error of its own'}); its own log says more"


class Forgotten(Exception):
    """The client does not have the memory that it should begin with."""


@dataclass(frozen=True)
class MemoryFolder:
    """What a client keeps between visits, on its own disk: one file for every name, whole or not there at all."""

    folder: Path

    def get(self, name: str | None) -> Tree:
        """What was kept by this name."""
        if name is None:
            return {}
        try:
            found = decode(self._path(name).read_bytes())
        except OSError as error:  # its words, without the path: this is told to the server
            raise Forgotten(f"does not have what it kept ({error.strerror or type(error).__name__})") from None
        except Malformed:  # whose words may quote the file
            raise Forgotten("does not have what it kept (the file is damaged)") from None
        if not isinstance(found, dict):
            raise Forgotten("does not have what it kept (the file is damaged)")
        return found

    def put(self, name: str, memory: Tree) -> None:
        """Keep this by a new name: a client that is killed in the middle of a visit still has what it had before."""
        files.write(self._path(name), bytes(encode(memory)), mode=files.PRIVATE)

    def keep_only(self, names: tuple[str, ...]) -> None:
        """Forget all else."""
        for path in self.folder.iterdir():
            if NAME.fullmatch(path.name) and path.name not in names:
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise Malformed(f"{name!r:.60} is no name of a memory")
        return self.folder / name


@dataclass
class Visitor:
    """Makes the visits of one client."""

    data: ClientData
    task: Task
    seed: int
    works: Mapping[str, Work]
    memory: MemoryFolder
    secretly: bool = False
    """Whether its noise is of numbers that nobody else knows, other ones at every visit: whoever asks twice for one
    would else take the noise away. If not, it derives from the seed of the run."""
    workspaces: Workspaces = field(init=False)
    _params: Vector | None = field(default=None, init=False)
    _shared: Tree = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.workspaces = Workspaces(self.task)

    def forget_connection(self) -> None:
        """Another connection: nothing that was sent over the last one is taken for known."""
        self._params, self._shared = None, {}

    def answer(self, request: Request) -> Done | Failed:
        """Make a visit; whatever goes wrong is told, and never ends the client."""
        try:
            return self._visited(request)
        except Forgotten as error:
            return Failed(request.ticket, str(error), forgotten=True)
        except Malformed as error:
            return Failed(request.ticket, f"cannot do what it was asked: {error}")
        except OSError as error:
            return Failed(request.ticket, f"cannot write what it keeps ({error.strerror or type(error).__name__})")

    def _visited(self, request: Request) -> Done | Failed:
        work = self.works.get(request.work)
        if work is None:
            raise Malformed(f"it knows no work {request.work!r:.60}")
        self._receive(request)
        memory = self.memory.get(request.memory)
        self.memory.keep_only(request.keep)
        baton = baton_of(
            torch.empty(0) if request.params is None or self._params is None else self._params, request.weight
        )
        began = time.perf_counter()
        with operator_threads(1):
            visit = Visit(
                *(self.data, self.task, memory, self._shared, request.round, request.hop, self.seed, self.workspaces),
                secret=secrets.randbits(128) if self.secretly else None,
            )
            result = attempt(work, baton, visit, told=kept_back)
        if isinstance(result, Drop):
            return Failed(request.ticket, result.reason)
        after, kept, report = result
        changed = kept is not memory
        if changed:
            self.memory.put(request.becomes, kept)
        same = after.params is baton.params
        self._params = self._params if same else after.params
        return Done(
            ticket=request.ticket,
            weight=after.weight,
            params=SAME if same else after.params,
            examples=report.examples,
            metrics=dict(report.metrics),
            uplink=dict(report.uplink),
            changed=changed,
            seconds=time.perf_counter() - began,
        )

    def _receive(self, request: Request) -> None:
        """What was sent, or is known since the last message."""
        if isinstance(request.params, torch.Tensor):
            self._params = request.params
        elif request.params == SAME and self._params is None:
            raise Malformed("the model should be known, and is not")
        if not isinstance(request.shared, str):
            self._shared = request.shared
